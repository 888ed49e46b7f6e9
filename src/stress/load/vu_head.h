/* vu_head.h - the head of a response as it arrives, for virtual users: they keep received bytes only while the head is
 * incomplete. */
#ifndef LS_STRESS_VU_HEAD_H
#define LS_STRESS_VU_HEAD_H

#include "stress/load/vu.h"

typedef struct ls_stress_head {
    const char *at; /* the head; after an error, what was received of it */
    size_t len;
    const char *why; /* of an error; a static text */
} ls_stress_head;

/* Continue u->http.reader with the next bytes. Returns how many of these belong to the head, which is complete, and to
 * interim responses; 0: all of them, and the head is incomplete; or LS_EPROTO, LS_ENOMEM. out->at is valid as long as
 * these bytes; if u->http.buf has bytes, it is there. */
int ls_stress_vu_head(ls_stress_vu *u, const char *bytes, size_t len, ls_stress_head *out);

#endif
