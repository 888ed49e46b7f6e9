# cmake -D SOURCE_DIR=... -D MODULES=luaserve/init.lua,... -D OUT=file.c -P embed.cmake
# Writes one C file with the bytes of the modules and their table (src/script/modules.h).
string(REPLACE "," ";" modules "${MODULES}")
set(arrays "")
set(table "")
set(count 0)
foreach(module IN LISTS modules)
  file(READ ${SOURCE_DIR}/${module} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(REGEX REPLACE "\\.lua$" "" name "${module}")
  string(REGEX REPLACE "/init$" "" name "${name}")
  string(REPLACE "/" "." name "${name}")
  # The zero at the end keeps the array of an empty file legal; it is not counted.
  string(APPEND arrays "static const unsigned char module_${count}[] = {\n${hex}0};\n\n")
  string(APPEND table "    {\"${name}\", (const char *)module_${count}, ${bytes}},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUT} "/* Made by lua/embed.cmake from lua/luaserve. */\n#include \"script/modules.h\"\n\n${arrays}"
  "const ls_module_source ls_modules[] = {\n${table}    {NULL, NULL, 0},\n};\n"
  "const size_t ls_modules_count = ${count};\n")
