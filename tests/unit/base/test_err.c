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
    assert_int_equal(ls_err_from_errno(0), LS_OK);
    assert_int_equal(ls_err_from_errno(ENOMEM), LS_ENOMEM);
    assert_int_equal(ls_err_from_errno(EMFILE), LS_EMFILE);
    assert_int_equal(ls_err_from_errno(ENFILE), LS_EMFILE);
    assert_int_equal(ls_err_from_errno(ECONNRESET), LS_ERESET);
    assert_int_equal(ls_err_from_errno(EADDRINUSE), LS_EADDRINUSE);
    assert_int_equal(ls_err_from_errno(EAGAIN), LS_EAGAIN);
    assert_int_equal(ls_err_from_errno(EWOULDBLOCK), LS_EAGAIN);
    assert_int_equal(ls_err_from_errno(ENOTCONN), LS_ECLOSED);
    assert_int_equal(ls_err_from_errno(ENOTDIR), LS_ENOENT);
    assert_int_equal(ls_err_from_errno(ENXIO), LS_ENOTSUP);
    assert_int_equal(ls_err_from_errno(EISDIR), LS_EISDIR);
    assert_int_equal(ls_err_from_errno(ENOSPC), LS_ENOSPC);
    assert_int_equal(ls_err_from_errno(EIO), LS_EIO);
    assert_int_equal(ls_err_from_errno(EXDEV), LS_EXDEV);
    assert_int_equal(ls_err_from_errno(ENOTEMPTY), LS_ENOTEMPTY);
    assert_int_equal(ls_err_from_errno(ECHILD), LS_ESYS);
}
