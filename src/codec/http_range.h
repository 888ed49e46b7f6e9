/* http_range.h - the Range field of a request (RFC 9110 14), Content-Range, and the framing of multipart/byteranges
 * (RFC 9110 14.6). Pure. */
#ifndef LS_CODEC_HTTP_RANGE_H
#define LS_CODEC_HTTP_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_RANGES_MAX = 16 };

typedef struct ls_range {
    uint64_t from, bytes; /* bytes >= 1 */
} ls_range;

enum ls_range_result {
    LS_RANGE_WHOLE,         /* the field is ignored: send the whole representation with 200 */
    LS_RANGE_PARTIAL,       /* send the ranges with 206 */
    LS_RANGE_UNSATISFIABLE, /* no range has a byte of the representation: 416 */
};

/* Evaluate the value of a Range field for a representation of `size` bytes. Ranges beyond its end are left out, and
 * ranges that overlap or touch become one, which takes the place of the first of them; so the ranges have at most
 * `size` bytes together. The field is ignored if its unit is not "bytes", if its syntax is invalid, if it has more
 * than LS_RANGES_MAX ranges, and for a suffix of an empty representation. */
enum ls_range_result ls_range_parse(const char *bytes, size_t len, uint64_t size, ls_range out[LS_RANGES_MAX],
                                    unsigned *count);

/* Write the value of Content-Range: "bytes 0-499/1234"; with range NULL, for a 416, that of an unsatisfied
 * range (RFC 9110 14.4).
 * Returns the length; no NUL. */
enum { LS_CONTENT_RANGE_BYTES = 70 };
size_t ls_content_range(const ls_range *range, uint64_t size, char out[LS_CONTENT_RANGE_BYTES]);

/* The boundary of a multipart body: 32 characters from 128 bits that a client cannot predict. */
enum { LS_BOUNDARY_BYTES = 32 };
void ls_boundary(const uint64_t random[2], char out[LS_BOUNDARY_BYTES]);

/* The value of Content-Type for it is this text and the boundary. */
#define LS_MULTIPART_TYPE "multipart/byteranges; boundary="

/* Write the head of a part, including the line break that ends the part before: at most LS_PART_HEAD_BYTES and the
 * length of `type`, the Content-Type of the representation. `first`: no part comes before. Returns the length. */
enum { LS_PART_HEAD_BYTES = 6 + LS_BOUNDARY_BYTES + 16 + 17 + LS_CONTENT_RANGE_BYTES + 4 };
size_t ls_part_head(const char boundary[LS_BOUNDARY_BYTES], bool first, const char *type, size_t type_len,
                    const ls_range *range, uint64_t size, char *out);

/* Write the end of the body. Returns the length. */
enum { LS_PARTS_END_BYTES = LS_BOUNDARY_BYTES + 8 };
size_t ls_parts_end(const char boundary[LS_BOUNDARY_BYTES], char out[LS_PARTS_END_BYTES]);

#endif
