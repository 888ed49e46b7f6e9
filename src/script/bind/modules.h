/* modules.h - the registry of the objects and functions that Lua code sees: one row each. A new one is a file with
 * `const ls_module ls_NAME_module` (core/module.h) and one row X(NAME) here. Its slot is LS_SLOT_NAME.
 *
 * The order is that of all calls of module.h: a module may use those before it. `hooks` is the last, so that hooks of
 * the site find everything started. */
#ifndef LS_SCRIPT_MODULES_H
#define LS_SCRIPT_MODULES_H

#include "script/core/module.h"

#define LS_MODULES(X)  \
    X(buffer)          \
    X(json)            \
    X(core)            \
    X(config)          \
    X(request)         \
    X(req)             \
    X(req_client)      \
    X(req_sent)        \
    X(res)             \
    X(body)            \
    X(body_save)       \
    X(body_coding)     \
    X(etag)            \
    X(middleware)      \
    X(upgrade)         \
    X(request_report)  \
    X(look)            \
    X(collections)     \
    X(response_coding) \
    X(text)            \
    X(crypto)          \
    X(path)            \
    X(acme)            \
    X(listener)        \
    X(records)         \
    X(access)          \
    X(metrics)         \
    X(job)             \
    X(timer)           \
    X(process)         \
    X(file)            \
    X(files)           \
    X(static)          \
    X(inject)          \
    X(topic)           \
    X(sse)             \
    X(proxy)           \
    X(cache)           \
    X(redis)           \
    X(tcp)             \
    X(connect)         \
    X(client_call)     \
    X(ws)              \
    X(ws_client)       \
    X(udp)             \
    X(udp_client)      \
    X(notify)          \
    X(socket)          \
    X(dict)            \
    X(wait)            \
    X(sqlite)          \
    X(postgres)        \
    X(channel)         \
    X(semaphore)       \
    X(host)            \
    X(dev)             \
    X(interrupt)       \
    X(hooks)

#define LS_MODULE_SLOT(name)   LS_SLOT_##name,
#define LS_MODULE_EXTERN(name) extern const ls_module ls_##name##_module;
enum ls_module_slot { LS_MODULES(LS_MODULE_SLOT) LS_SLOTS };
LS_MODULES(LS_MODULE_EXTERN)

#endif
