/* options.h - the options of ls_server_open, checked, copied, and merged with those of the site; and the messages of
 * functions that fail. */
#ifndef LS_SERVER_OPTIONS_H
#define LS_SERVER_OPTIONS_H

#include "base/compiler.h"
#include "luaserve.h"
#include "script/site/site.h"

/* Write a message; returns err. */
LS_PRINTF(4, 5) int ls_server_explain(int err, char *message, size_t bytes, const char *format, ...);

/* `full` receives the options, and 0 for those that the program does not know. LS_EINVAL with a message. */
int ls_server_check_options(const ls_server_options *given, ls_server_options *full, char *message,
                            size_t message_bytes);
/* Copy the options and what they point to, which a reload uses again. LS_ENOMEM: free what there is. */
int ls_server_copy_options(const ls_server_options *options, ls_server_options *own);
void ls_server_free_options(ls_server_options *own);
/* Merge the settings: the options override the site, the site overrides the defaults. threads_max is a promise to the
 * site about the number of its states, so nothing increases it. threads > threads_max in the result: they
 * contradict. */
ls_site_settings ls_server_merge_settings(const ls_server_options *options, const ls_site_settings *site);

#endif
