-- histogram.lua - an exact stand-in for the histograms of luaserve stress (src/stress/measure/histogram_object.h).

local histogram = {}
histogram.__index = histogram

function histogram:percentile(percent)
  return self.values[math.max(math.ceil(percent / 100 * self.count - 1e-9), 1)] or 0
end

function histogram:below(value)
  local count = 0
  for _, one in ipairs(self.values) do if one <= value then count = count + 1 end end
  return self.count > 0 and 100 * count / self.count or 100
end

function histogram:within(n)
  local count = 0
  for _, one in ipairs(self.values) do if math.abs(one - self.mean) <= n * self.stdev then count = count + 1 end end
  return self.count > 0 and 100 * count / self.count or 0
end

-- histogram { { value, count }, ... } -> the object
return function(pairs_of)
  local values = {}
  for _, pair in ipairs(pairs_of) do for _ = 1, pair[2] do values[#values + 1] = pair[1] end end
  table.sort(values)
  local sum, squares = 0, 0
  for _, value in ipairs(values) do sum = sum + value end
  local mean = #values > 0 and sum / #values or 0
  for _, value in ipairs(values) do squares = squares + (value - mean) ^ 2 end
  return setmetatable({ values = values, count = #values, min = values[1] or 0, max = values[#values] or 0, mean = mean,
    stdev = #values > 0 and math.sqrt(squares / #values) or 0, clipped = 0 }, histogram)
end
