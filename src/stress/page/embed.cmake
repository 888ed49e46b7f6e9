# cmake -D DIR=<this folder> -D OUT=file.c -P embed.cmake
# One page from report.html, report.css and report.js, as bytes in a C file (src/stress/page.h).
file(READ ${DIR}/report.html page)
file(READ ${DIR}/report.css style)
file(READ ${DIR}/report.js script)
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUT}.html "${page}")
file(READ ${OUT}.html hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "/* Made by src/stress/page/embed.cmake. */\n#include \"stress/page.h\"\n\n"
  "const unsigned char ls_stress_page[] = {\n${hex}0};\nconst size_t ls_stress_page_len = ${bytes};\n")
