# Lua for Visual Studio, built by the same CMakeLists.txt from the sources of scripts/sources, because the Lua of vcpkg is
# a later version; and the patched files that third_party/CMakeLists.txt compiles. This port has not been run yet.
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)

# archive(RESULT PATTERN): the path of an archive downloaded by scripts/sources, after its SHA-256 was checked.
set(third_party ${CMAKE_CURRENT_LIST_DIR}/../..)
get_filename_component(folder ${third_party}/../build/sources ABSOLUTE)
file(STRINGS ${third_party}/sources.txt sources REGEX "^[^#]")
function(archive result pattern)
  foreach(source IN LISTS sources)
    if(source MATCHES "^([^ ]*/${pattern}) ([0-9a-f]+) ")
      set(path ${CMAKE_MATCH_1})
      set(sum ${CMAKE_MATCH_2})
      get_filename_component(name ${path} NAME)
      if(NOT EXISTS ${folder}/${name})
        message(FATAL_ERROR "${folder}/${name} is missing: run scripts/sources (Debian, Ubuntu or WSL), or put "
          "pool/main/${path} of a Debian mirror there")
      endif()
      file(SHA256 ${folder}/${name} found)
      if(NOT found STREQUAL sum)
        message(FATAL_ERROR "${folder}/${name} has the SHA-256 ${found}; third_party/sources.txt lists ${sum}")
      endif()
      set(${result} ${folder}/${name} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "third_party/sources.txt has no ${pattern}")
endfunction()

archive(lua_archive "lua5\\.4_.*\\.orig\\.tar\\.gz")
archive(debian_archive "lua5\\.4_.*\\.debian\\.tar\\.xz")
archive(cjson_archive "lua-cjson_.*\\.orig\\.tar\\.gz")

# Only Debian's fixes of Lua itself; its other patches change the build and paths.
vcpkg_extract_source_archive(debian ARCHIVE ${debian_archive})
file(GLOB repairs ${debian}/patches/*-cve-*.patch)
vcpkg_extract_source_archive(lua ARCHIVE ${lua_archive} PATCHES ${repairs})
vcpkg_extract_source_archive(lua_patched ARCHIVE ${lua_archive}
  PATCHES ${repairs} ${third_party}/patches/lstrlib.c.patch ${third_party}/patches/ltablib.c.patch)
vcpkg_extract_source_archive(cjson ARCHIVE ${cjson_archive} PATCHES ${third_party}/patches/lua_cjson.c.patch)

vcpkg_cmake_configure(SOURCE_PATH ${CMAKE_CURRENT_LIST_DIR}/../../windows
  OPTIONS -DLUA_SOURCE=${lua}/src -DCMOCKA_SOURCE=)
vcpkg_cmake_install()
file(INSTALL ${cjson}/lua_cjson.c ${cjson}/strbuf.h ${cjson}/fpconv.h
  ${lua_patched}/src/lstrlib.c ${lua_patched}/src/ltablib.c ${lua_patched}/src/lprefix.h DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT}/patched)
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/include)
vcpkg_install_copyright(FILE_LIST ${lua}/doc/readme.html ${cjson}/LICENSE)
