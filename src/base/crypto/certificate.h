/* certificate.h - keys of certificates, requests for certificates (PKCS #10), and what a certificate says, from
 * OpenSSL. Texts are PEM. Any thread. */
#ifndef LS_BASE_CERTIFICATE_H
#define LS_BASE_CERTIFICATE_H

#include <stddef.h>
#include <stdint.h>

enum { LS_POINT_BYTES = 64, LS_KEY_PEM_BYTES_MAX = 1024, LS_SERIAL_BYTES_MAX = 32, LS_KEY_ID_BYTES_MAX = 64 };

/* Make a private key for ECDSA with P-256: PKCS #8. Returns the number of bytes; LS_ENOTSUP: built without OpenSSL;
 * LS_ENOMEM. */
int ls_key_make(char out[LS_KEY_PEM_BYTES_MAX]);
/* The public key of such a key: x and y (RFC 7518 section 6.2.1). LS_OK; LS_EINVAL: it is no such key; as before. */
int ls_key_point(const char *pem, size_t len, uint8_t out[LS_POINT_BYTES]);
/* Make a request (RFC 2986, DER) with this key. `names`: "DNS:a.example,DNS:b.example". Returns the number of bytes;
 * LS_EINVAL: not a key, or not names; LS_ELIMIT: more than `room`; as before. LS_REQUEST_BYTES are beside the names. */
enum { LS_REQUEST_BYTES = 1024 };
int ls_certificate_request(const char *pem, size_t len, const char *names, uint8_t *out, size_t room);

typedef struct ls_certificate {
    int64_t not_before, not_after; /* seconds since 1970 */
    size_t serial_len, key_id_len, names_len;
    uint8_t serial[LS_SERIAL_BYTES_MAX]; /* the value of its DER form, as RFC 9773 section 4.1 has it */
    uint8_t key_id[LS_KEY_ID_BYTES_MAX]; /* that of the issuer (AuthorityKeyIdentifier); none: 0 bytes */
} ls_certificate;

/* Read the first certificate of a text that also has its private key and its chain, and check that they belong
 * together: the key to it, and each further certificate has signed the one before. `names`, with room for `len` bytes,
 * receives its DNS names, one per line. LS_OK; LS_EINVAL: *why says what is wrong; LS_ENOTSUP, LS_ENOMEM. */
int ls_certificate_read(const char *pem, size_t len, ls_certificate *out, char *names, const char **why);

#endif
