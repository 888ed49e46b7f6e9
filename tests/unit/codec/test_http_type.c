/* test_http_type.c - media types by file name extension. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "codec/http_type.h"

TEST(extensions_have_their_types)
{
    assert_string_equal(ls_http_type_of("index.html"), "text/html; charset=utf-8");
    assert_string_equal(ls_http_type_of("/srv/a.b/app.min.js"), "text/javascript; charset=utf-8");
    assert_string_equal(ls_http_type_of("C:\\site\\PHOTO.JPG"), "image/jpeg");
    assert_string_equal(ls_http_type_of("x.webm"), "video/webm");
}

TEST(other_names_are_octet_streams)
{
    static const char *const names[] = {"", "html", "html.", ".", "a.htmlx", "a.ht", "dir.html/file", "dir.css\\file"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_string_equal(ls_http_type_of(names[i]), "application/octet-stream");
}

TEST(extensions_alone)
{
    assert_string_equal(ls_http_type_of_extension("html"), "text/html; charset=utf-8");
    assert_string_equal(ls_http_type_of_extension("JSON"), "application/json");
    assert_null(ls_http_type_of_extension(""));
    assert_null(ls_http_type_of_extension(".html"));
    assert_null(ls_http_type_of_extension("htmlx"));
}
