-- report.lua - a custom report: percentiles as CSV lines.
-- luacheck: std luajit, no unused args, globals done
function done(summary, latency, rates)
  io.write("requests,", summary.requests, "\n")
  io.write(string.format("seconds,%.3f\n", summary.duration / 1e6))
  for _, kind in pairs { "connect", "read", "write", "status", "timeout" } do
    io.write(string.format("errors %s,%d\n", kind, summary.errors[kind]))
  end
  for _, p in pairs { 50, 90, 99, 99.999 } do
    io.write(string.format("p%g,%d\n", p, latency:percentile(p)))
  end
  io.write(string.format("min,%d\nmax,%d\nmean,%.1f\nstdev,%.1f\n", latency.min, latency.max, latency.mean,
    latency.stdev))
  local value, count = latency(1)
  io.write(string.format("values,%d\nfirst,%d,%d\n", #latency, value, count))
  io.write(string.format("rate of a thread,%.0f\n", rates.mean))
end
