/* udp_groups.c - see udp_internal.h. */
#include <string.h>

#include "base/err.h"
#include "net/udp_internal.h"

int ls_udp_interface_of(const char *text, ls_udp_interface *out)
{
    ls_addr addr;
    *out = (ls_udp_interface){.number = 0};
    if (text[0] == '\0') return LS_OK;
    if (ls_addr_parse(text, 0, &addr) == LS_OK && addr.family == LS_ADDR_IP4) {
        memcpy(out->ip4, addr.bytes, sizeof out->ip4);
        return LS_OK;
    }
    out->number = ls_udp_interface_number(text);
    return out->number != 0 ? LS_OK : LS_ENOENT;
}

static bool has_group(const ls_udp_setup *setup, const ls_addr *group)
{
    for (unsigned i = 0; i < setup->group_count; i++)
        if (memcmp(setup->groups[i].bytes, group->bytes, sizeof group->bytes) == 0) return true;
    return false;
}

int ls_udp_change_groups(ls_fd fd, const ls_udp_setup *before, const ls_udp_setup *setup,
                         const ls_udp_interface *through)
{
    const bool same = before != NULL && strcmp(before->interface, setup->interface) == 0;
    ls_udp_interface earlier;
    int err = LS_OK;
    if (before != NULL && ls_udp_interface_of(before->interface, &earlier) == LS_OK)
        for (unsigned i = 0; i < before->group_count; i++)
            if (!same || !has_group(setup, &before->groups[i]))
                (void)ls_udp_join(fd, &before->groups[i], &earlier, true);
    for (unsigned i = 0; i < setup->group_count && err == LS_OK; i++)
        if (!same || !has_group(before, &setup->groups[i])) err = ls_udp_join(fd, &setup->groups[i], through, false);
    return err;
}
