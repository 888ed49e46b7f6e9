# Lua and lua-cjson for Visual Studio: the sources that scripts/test-windows takes, too (../../windows/sources.txt), built by the
# same CMakeLists.txt. vcpkg has no lua-cjson, and its Lua is a later one. Nobody has run this yet.
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)

# fetch(RESULT path sha512): a file of Debian's pool; snapshot.debian.org keeps it when Debian has a newer one.
function(fetch result path sha512)
  get_filename_component(name ${path} NAME)
  vcpkg_download_distfile(archive
    URLS https://deb.debian.org/debian/pool/main/${path}
      https://snapshot.debian.org/archive/debian/20250601T000000Z/pool/main/${path}
    FILENAME ${name}
    SHA512 ${sha512})
  set(${result} ${archive} PARENT_SCOPE)
endfunction()

fetch(lua_archive l/lua5.4/lua5.4_5.4.4.orig.tar.gz
  af0c35d5ba00fecbb2dd617bd7b825edf7418a16a73076e04f2a0df58cdbf098dc3ff4402e974afd789eb5d86d2e12ec6df9c84b99b23656ea694a85f83bcd21)
fetch(debian_archive l/lua5.4/lua5.4_5.4.4-3+deb12u1.debian.tar.xz
  c94f689a7ca9410b7e82f7df73ec5ccaecff146131478bbee63d845fdca5c45835f9c011fe5fca38e921651a082eb4e5c3858880e420431fcbf328b2db950776)
fetch(cjson_archive l/lua-cjson/lua-cjson_2.1.0+dfsg.orig.tar.gz
  4e7d7beecbc00d5e678bd78e7e21ad31cec544d60bacbf3894ab89f3581be5d66165cbe6ea1e7031d4dba0abbecd969d84da4dfde8d282d25e19c7d2fcbe739d)

# Debian's repairs of Lua's own code; its other patches are for its build and its paths.
vcpkg_extract_source_archive(debian ARCHIVE ${debian_archive})
file(GLOB repairs ${debian}/patches/*-cve-*.patch)
vcpkg_extract_source_archive(lua ARCHIVE ${lua_archive} PATCHES ${repairs})
vcpkg_extract_source_archive(cjson ARCHIVE ${cjson_archive})

vcpkg_cmake_configure(SOURCE_PATH ${CMAKE_CURRENT_LIST_DIR}/../../windows
  OPTIONS -DLUA_SOURCE=${lua}/src -DCJSON_SOURCE=${cjson} -DCMOCKA_SOURCE=)
vcpkg_cmake_install()
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/include)
vcpkg_install_copyright(FILE_LIST ${lua}/doc/readme.html ${cjson}/LICENSE)
