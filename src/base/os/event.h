/* event.h - a descriptor that becomes readable once, for the event loop of a program. */
#ifndef LS_BASE_EVENT_H
#define LS_BASE_EVENT_H

typedef struct ls_event {
    int ends[2]; /* of a pipe: the second one is closed by the event */
} ls_event;

int ls_event_open(ls_event *event); /* LS_OK, or LS_EMFILE ...; not of Windows */
int ls_event_fd(const ls_event *event); /* LS_ENOTSUP: the system has no such descriptor */
void ls_event_set(ls_event *event);     /* once */
void ls_event_close(ls_event *event);   /* also without ls_event_set() */

#endif
