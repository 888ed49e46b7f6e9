/* tls_clients.c - see tls_clients.h. A short list; the options of each are a text to compare. */
#include "script/tls_clients.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/list.h"
#include "base/thread.h"

typedef struct tls_client {
    ls_node node;
    ls_tls *tls;
    size_t key_bytes;
    char key[];
} tls_client;

struct ls_tls_clients {
    ls_mutex mutex;
    ls_node list; /* the oldest first */
    unsigned count;
};

enum { KEY_TEXTS = 7 };

/* Write the options as texts that end with NUL, each behind a byte that tells an absent one from an empty one. `to` may
 * be NULL. Returns the number of bytes. */
static size_t key_write(const ls_tls_options *o, char *to)
{
    const ls_tls_cert none = {NULL, NULL, NULL}, *cert = o->cert_count > 0 ? o->certs : &none;
    const char *const texts[KEY_TEXTS] = {cert->cert, cert->key, cert->password, o->ca, o->min, o->ciphers, o->alpn};
    size_t n = 0;
    if (to != NULL) to[n] = o->insecure ? '1' : '0';
    n++;
    for (int i = 0; i < KEY_TEXTS; i++) {
        const char *text = texts[i] != NULL ? texts[i] : "";
        const size_t bytes = strlen(text) + 1;
        if (to != NULL) to[n] = texts[i] != NULL ? '=' : '-';
        if (to != NULL) memcpy(to + n + 1, text, bytes);
        n += 1 + bytes;
    }
    return n;
}

static tls_client *client_new(const ls_tls_options *options)
{
    const size_t bytes = key_write(options, NULL);
    tls_client *client = malloc(sizeof *client + bytes);
    if (client == NULL) return NULL;
    ls_node_init(&client->node);
    client->key_bytes = key_write(options, client->key);
    return client;
}

static void client_remove(ls_tls_clients *clients, tls_client *client)
{
    ls_list_remove(&client->node);
    clients->count--;
    ls_tls_drop(client->tls);
    free(client);
}

static tls_client *client_find(ls_tls_clients *clients, const tls_client *like)
{
    for (ls_node *node = clients->list.next; node != &clients->list; node = node->next) {
        tls_client *client = LS_CONTAINER(node, tls_client, node);
        if (client->key_bytes == like->key_bytes && memcmp(client->key, like->key, like->key_bytes) == 0)
            return client;
    }
    return NULL;
}

/* The mutex is held: two tasks that begin at the same time share the context. Takes `client`. */
static int find_or_open(ls_tls_clients *clients, tls_client *client, const ls_tls_options *options, ls_tls **out,
                        char *why, size_t why_bytes)
{
    tls_client *found = client_find(clients, client);
    if (found != NULL) {
        free(client);
        if (options->ca != NULL || options->cert_count > 0) (void)ls_tls_reload(found->tls, false, why, why_bytes);
        *out = ls_tls_hold(found->tls);
        return LS_OK;
    }
    const int err = ls_tls_open(options, &client->tls, why, why_bytes);
    if (err < 0) {
        free(client);
        return err;
    }
    if (clients->count == LS_TLS_CLIENTS_MAX)
        client_remove(clients, LS_CONTAINER(clients->list.next, tls_client, node));
    ls_list_push(&clients->list, &client->node);
    clients->count++;
    *out = ls_tls_hold(client->tls);
    return LS_OK;
}

int ls_tls_clients_get(ls_tls_clients *clients, const ls_tls_options *options, ls_tls **out, char *why,
                       size_t why_bytes)
{
    tls_client *client = client_new(options);
    if (why_bytes > 0) why[0] = '\0';
    if (client == NULL) return LS_ENOMEM;
    ls_mutex_lock(&clients->mutex);
    const int err = find_or_open(clients, client, options, out, why, why_bytes);
    ls_mutex_unlock(&clients->mutex);
    return err;
}

int ls_tls_clients_open(ls_tls_clients **out)
{
    ls_tls_clients *clients = calloc(1, sizeof *clients);
    if (clients == NULL) return LS_ENOMEM;
    const int err = ls_mutex_open(&clients->mutex);
    if (err < 0) {
        free(clients);
        return err;
    }
    ls_node_init(&clients->list);
    *out = clients;
    return LS_OK;
}

void ls_tls_clients_close(ls_tls_clients *clients)
{
    while (!ls_list_empty(&clients->list)) client_remove(clients, LS_CONTAINER(clients->list.next, tls_client, node));
    ls_mutex_close(&clients->mutex);
    free(clients);
}
