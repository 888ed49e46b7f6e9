/* base64.h - bytes as text and back: base64, base64url (RFC 4648 sections 4 and 5) and hexadecimal digits. Pure; any
 * thread. */
#ifndef LS_CODEC_BASE64_H
#define LS_CODEC_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Digits of `len` bytes in base64 with padding; the most that base64url needs. */
#define LS_BASE64_CHARS(len) (((len) + 2) / 3 * 4)

/* Write base64 with padding; `url`: base64url without. No NUL. Returns the number of characters. */
size_t ls_base64_write(const void *bytes, size_t len, bool url, char *out);

/* Read it into `out`, which has room for len / 4 * 3 + 2 bytes and may be `text`. Padding may be missing. Returns the
 * number of bytes; -1: a character, the padding or the length is invalid, or the bits after the last byte are not
 * zero, so that each text has one form. */
ptrdiff_t ls_base64_read(const char *text, size_t len, bool url, void *out);

/* Write 2 * len digits, 0 to f. */
void ls_hex_write(const void *bytes, size_t len, char *out);

/* Read an even number of digits, of either case, into len / 2 bytes. False: another length or character. */
bool ls_hex_read(const char *text, size_t len, void *out);

#endif
