/* test_err.c - the table of error codes. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/err.h"

TEST(every_code_has_its_name_and_text)
{
#define X(name, number, text)                        \
    assert_string_equal(ls_err_name(number), #name); \
    assert_string_equal(ls_err_text(number), text);
    LS_ERRORS(X)
#undef X
}

TEST(a_number_outside_the_table_is_esys)
{
    assert_string_equal(ls_err_name(-9999), "ESYS");
    assert_string_equal(ls_err_name(1), "ESYS");
    assert_string_equal(ls_err_text(-9999), ls_err_text(LS_ESYS));
}

TEST(errno_values_map_to_codes)
{
    static const int codes[][2] = {
        /* clang-format off */
        {0, LS_OK}, {ENOMEM, LS_ENOMEM}, {EMFILE, LS_EMFILE}, {ENFILE, LS_EMFILE}, {ECONNRESET, LS_ERESET},
        {EADDRINUSE, LS_EADDRINUSE}, {EAGAIN, LS_EAGAIN}, {EWOULDBLOCK, LS_EAGAIN}, {ENOTCONN, LS_ECLOSED},
        {ENOTDIR, LS_ENOENT}, {ENXIO, LS_ENOTSUP}, {EISDIR, LS_EISDIR}, {ENOSPC, LS_ENOSPC}, {EIO, LS_EIO},
        {EXDEV, LS_EXDEV}, {ENOTEMPTY, LS_ENOTEMPTY}, {ECHILD, LS_ESYS},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        assert_int_equal(ls_err_from_errno(codes[i][0]), codes[i][1]);
}
