/* err_win32.c - the table of Win32 and Winsock error numbers, and the mapping of an NTSTATUS to it. Pure; any thread.
 *
 * A socket operation that fails immediately reports a Winsock number (WSAGetLastError). One that fails later completes
 * with an NTSTATUS, which RtlNtStatusToDosError maps to a Win32 number, not to a Winsock one. */
#include <windows.h>
#include <winsock2.h>
#include <winternl.h>

#include "base/err_win32.h"

typedef struct row {
    uint32_t number;
    int code;
} row;

static const row numbers[] = {
    {ERROR_SUCCESS, LS_OK},
    /* Win32 */
    {ERROR_FILE_NOT_FOUND, LS_ENOENT},
    {ERROR_PATH_NOT_FOUND, LS_ENOENT},
    {ERROR_TOO_MANY_OPEN_FILES, LS_EMFILE},
    {ERROR_ACCESS_DENIED, LS_EACCES},
    {ERROR_INVALID_HANDLE, LS_EINVAL},
    {ERROR_NOT_ENOUGH_MEMORY, LS_ENOMEM},
    {ERROR_OUTOFMEMORY, LS_ENOMEM},
    {ERROR_SHARING_VIOLATION, LS_EACCES},
    {ERROR_HANDLE_EOF, LS_EINVAL},
    {ERROR_NOT_SUPPORTED, LS_ENOTSUP},
    {ERROR_WRITE_PROTECT, LS_EACCES},
    {ERROR_LOCK_VIOLATION, LS_EACCES},
    {ERROR_BAD_NETPATH, LS_ENOENT},
    {ERROR_INVALID_NAME, LS_ENOENT},
    {ERROR_BAD_PATHNAME, LS_ENOENT},
    {ERROR_DIRECTORY, LS_ENOENT}, /* a file in place of a directory */
    {ERROR_FILENAME_EXCED_RANGE, LS_ELIMIT},
    {ERROR_FILE_TOO_LARGE, LS_ELIMIT},
    {ERROR_HANDLE_DISK_FULL, LS_ENOSPC},
    {ERROR_DISK_FULL, LS_ENOSPC},
    {ERROR_CRC, LS_EIO},
    {ERROR_IO_DEVICE, LS_EIO},
    {ERROR_NETNAME_DELETED, LS_ERESET}, /* a reset of the connection, reported by an overlapped receive */
    {ERROR_DEV_NOT_EXIST, LS_ENOTSUP},
    {ERROR_FILE_EXISTS, LS_EEXIST},
    {ERROR_INVALID_PARAMETER, LS_EINVAL},
    {ERROR_BROKEN_PIPE, LS_EPIPE},
    {ERROR_CALL_NOT_IMPLEMENTED, LS_ENOTSUP},
    {ERROR_SEM_TIMEOUT, LS_ETIMEDOUT}, /* a connect without a reply */
    {ERROR_ALREADY_EXISTS, LS_EEXIST},
    {ERROR_DIR_NOT_EMPTY, LS_ENOTEMPTY},
    {ERROR_NOT_SAME_DEVICE, LS_EXDEV},
    {ERROR_MORE_DATA, LS_EMSGSIZE},
    {WAIT_TIMEOUT, LS_ETIMEDOUT},
    {ERROR_OPERATION_ABORTED, LS_ECANCELED},
    {ERROR_IO_PENDING, LS_EAGAIN},
    {ERROR_DELETE_PENDING, LS_EACCES},
    {ERROR_NOACCESS, LS_EINVAL},
    {ERROR_NOT_FOUND, LS_ENOENT},
    {ERROR_CANCELLED, LS_ECANCELED},
    {ERROR_CONNECTION_REFUSED, LS_EREFUSED},
    {ERROR_GRACEFUL_DISCONNECT, LS_ECLOSED},
    {ERROR_ADDRESS_ALREADY_ASSOCIATED, LS_EADDRINUSE},
    {ERROR_CONNECTION_INVALID, LS_ECLOSED},
    {ERROR_NETWORK_UNREACHABLE, LS_EUNREACH},
    {ERROR_HOST_UNREACHABLE, LS_EUNREACH},
    {ERROR_PROTOCOL_UNREACHABLE, LS_EREFUSED},
    {ERROR_PORT_UNREACHABLE, LS_EREFUSED},
    {ERROR_CONNECTION_ABORTED, LS_ERESET},
    {ERROR_INVALID_NETNAME, LS_EADDRNOTAVAIL},
    {ERROR_USER_MAPPED_FILE, LS_EACCES},
    {ERROR_NO_SYSTEM_RESOURCES, LS_ENOMEM},
    {ERROR_NONPAGED_SYSTEM_RESOURCES, LS_ENOMEM},
    {ERROR_PAGED_SYSTEM_RESOURCES, LS_ENOMEM},
    {ERROR_WORKING_SET_QUOTA, LS_ENOMEM},
    {ERROR_PAGEFILE_QUOTA, LS_ENOMEM},
    {ERROR_COMMITMENT_LIMIT, LS_ENOMEM},
    {ERROR_TIMEOUT, LS_ETIMEDOUT},
    {ERROR_CANT_ACCESS_FILE, LS_EACCES}, /* a reparse point, such as the path of a Unix socket, opened as a file */
    /* Winsock */
    {WSAEINTR, LS_ECANCELED},
    {WSAEBADF, LS_EINVAL},
    {WSAEACCES, LS_EACCES},
    {WSAEFAULT, LS_EINVAL},
    {WSAEINVAL, LS_EINVAL},
    {WSAEMFILE, LS_EMFILE},
    {WSAEWOULDBLOCK, LS_EAGAIN},
    {WSAEINPROGRESS, LS_EAGAIN},
    {WSAEALREADY, LS_EAGAIN},
    {WSAENOTSOCK, LS_EINVAL},
    {WSAEMSGSIZE, LS_EMSGSIZE},
    {WSAEPROTONOSUPPORT, LS_ENOTSUP},
    {WSAESOCKTNOSUPPORT, LS_ENOTSUP},
    {WSAEOPNOTSUPP, LS_ENOTSUP},
    {WSAEPFNOSUPPORT, LS_ENOTSUP},
    {WSAEAFNOSUPPORT, LS_ENOTSUP},
    {WSAENOPROTOOPT, LS_ENOTSUP},
    {WSAEADDRINUSE, LS_EADDRINUSE},
    {WSAEADDRNOTAVAIL, LS_EADDRNOTAVAIL},
    {WSAENETDOWN, LS_EUNREACH},
    {WSAENETUNREACH, LS_EUNREACH},
    {WSAENETRESET, LS_ERESET},
    {WSAECONNABORTED, LS_ERESET},
    {WSAECONNRESET, LS_ERESET},
    {WSAENOBUFS, LS_ENOMEM},
    {WSAENOTCONN, LS_ECLOSED},
    {WSAESHUTDOWN, LS_EPIPE}, /* after shutdown(SD_SEND) */
    {WSAETIMEDOUT, LS_ETIMEDOUT},
    {WSAECONNREFUSED, LS_EREFUSED},
    {WSAENAMETOOLONG, LS_ELIMIT},
    {WSAEHOSTDOWN, LS_EUNREACH},
    {WSAEHOSTUNREACH, LS_EUNREACH},
    {WSA_E_CANCELLED, LS_ECANCELED},
    {WSAHOST_NOT_FOUND, LS_ENOENT},
    {WSATRY_AGAIN, LS_ETIMEDOUT},
    {WSANO_DATA, LS_ENOENT},
};

int ls_err_from_win32(uint32_t system_error)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].number == system_error) return numbers[i].code;
    return LS_ESYS;
}

int ls_err_from_system(int number)
{
    return ls_err_from_win32((uint32_t)number);
}

int ls_err_from_status(uint32_t status)
{
    /* LOCAL_DISCONNECT: a socket was closed with the operation pending, which its owner knows, or this side aborted
     * the connection (retransmissions timed out, the interface is down). */
    enum { CANCELLED = (int)0xC0000120, HANDLES_CLOSED = (int)0x8000000A, LOCAL_DISCONNECT = (int)0xC000013B };
    const int known = (int)status;
    if (known == CANCELLED || known == HANDLES_CLOSED) return LS_ECANCELED;
    if (known == LOCAL_DISCONNECT) return LS_ERESET;
    return ls_err_from_win32(RtlNtStatusToDosError((NTSTATUS)status));
}
