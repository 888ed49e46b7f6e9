/* tls_peer_openssl.c - a session as text: what was negotiated and with whom, and why it failed. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "net/tls/tls_internal_openssl.h"

/* Alerts have these reason codes plus the number of the alert (RFC 8446 section 6). */
#define IS_ALERT(reason) ((reason) >= SSL_AD_REASON_OFFSET && (reason) < SSL_AD_REASON_OFFSET + 256)

/* ---- the peer ----------------------------------------------------------------------------------------------- */

/* "CN=a client,O=Example", as RFC 4514 writes it, truncated to the characters that have room. */
static void name_text(const X509_NAME *name, char *to, size_t bytes)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int n = 0;
    if (bio != NULL && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~(unsigned long)ASN1_STRFLGS_ESC_MSB) >= 0)
        n = BIO_read(bio, to, (int)bytes);
    BIO_free(bio);
    for (bool split = n == (int)bytes; split && n > 0; split = ((unsigned char)to[n] & 0xC0) == 0x80) n--;
    to[n > 0 ? n : 0] = '\0';
}

/* The text of our configuration for the protocol that was chosen. */
static const char *alpn_of(const ls_tls_conn *s)
{
    const unsigned char *chosen;
    unsigned len;
    SSL_get0_alpn_selected(s->ssl, &chosen, &len);
    for (char **own = s->tls->config.alpn; own != NULL && *own != NULL && len > 0; own++)
        if (strlen(*own) == len && memcmp(*own, chosen, len) == 0) return *own;
    return NULL;
}

bool ls_tls_speaks(const ls_filter *session, const char *protocol)
{
    const ls_tls_conn *s = (const ls_tls_conn *)(const void *)session;
    const char *alpn = s->ssl != NULL ? alpn_of(s) : NULL;
    return alpn != NULL && strcmp(alpn, protocol) == 0;
}

void ls_tls_peer_of(const ls_filter *session, ls_tls_peer *out)
{
    const ls_tls_conn *s = (const ls_tls_conn *)(const void *)session;
    *out = (ls_tls_peer){.version = NULL};
    if (s->ssl == NULL) return;
    X509 *cert = SSL_get0_peer_certificate(s->ssl);
    *out = (ls_tls_peer){.version = SSL_get_version(s->ssl),
                         .cipher = SSL_CIPHER_get_name(SSL_get_current_cipher(s->ssl)),
                         .alpn = alpn_of(s),
                         .server_name = SSL_get_servername(s->ssl, TLSEXT_NAMETYPE_host_name),
                         .is_client = s->server,
                         .resumed = SSL_session_reused(s->ssl) == 1};
    if (cert != NULL) {
        out->verified =
            (SSL_get_verify_mode(s->ssl) & SSL_VERIFY_PEER) != 0 && SSL_get_verify_result(s->ssl) == X509_V_OK;
        name_text(X509_get_subject_name(cert), out->subject, sizeof out->subject);
        name_text(X509_get_issuer_name(cert), out->issuer, sizeof out->issuer);
        ls_tls_hex(cert, out->fingerprint);
    }
    ERR_clear_error();
}

/* ---- the reason of a failure -------------------------------------------------------------------------------- */

static int explain_certificate(const ls_tls_conn *s, char *to, size_t bytes)
{
    const long result = SSL_get_verify_result(s->ssl);
    const char *whose = s->server ? "the client" : s->name != NULL ? s->name : "the server";
    if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
        snprintf(to, bytes, "the certificate is not for %s", whose);
    else
        snprintf(to, bytes, "the certificate of %s is not accepted: %s", whose, X509_verify_cert_error_string(result));
    return LS_ECERT;
}

/* The texts of OpenSSL for common reasons name its own states rather than the fault. */
static const char *plain_reason(int reason)
{
    switch (reason) {
    case SSL_R_NO_SHARED_CIPHER: return "no common cipher";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW: return "the peer offers only versions of TLS that are too old";
    case SSL_R_NO_APPLICATION_PROTOCOL: return "no common application protocol (ALPN)";
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC: return "forged or damaged record";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return "the client has no certificate";
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_DATA_LENGTH_TOO_LONG: return "oversized record";
    default: return NULL;
    }
}

/* OpenSSL's text without what it puts in front: "tlsv13 alert certificate required". */
static const char *alert_text(int reason)
{
    const char *text = ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason));
    if (text == NULL) return "unknown alert";
    const char *space = strchr(text, ' ');
    if (space == NULL) return text;
    return strncmp(space, " alert ", 7) == 0 ? space + 7 : space + 1;
}

static int explain(const ls_tls_conn *s, char *to, size_t bytes)
{
    char room[LS_TLS_REASON_BYTES];
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    if (s->no_memory || reason == ERR_R_MALLOC_FAILURE) return LS_ENOMEM;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) return explain_certificate(s, to, bytes);
    const char *plain = ERR_GET_LIB(code) == ERR_LIB_SSL ? plain_reason(reason) : NULL;
    if (plain != NULL)
        snprintf(to, bytes, "%s", plain);
    else if (ERR_GET_LIB(code) == ERR_LIB_SSL && IS_ALERT(reason))
        snprintf(to, bytes, "the peer reports: %s", alert_text(reason));
    else if (s->not_tls && !s->complete)
        snprintf(to, bytes, "the peer does not speak TLS");
    else if (code == 0)
        snprintf(to, bytes, "%s", ls_err_text(LS_EPROTO));
    else
        snprintf(to, bytes, "%s", ls_tls_reason(room));
    return reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE ? LS_ECERT : LS_EPROTO;
}

int ls_tls_explain(ls_tls_conn *s)
{
    char text[400] = "";
    const int err = explain(s, text, sizeof text);
    ERR_clear_error();
    if (s->why == NULL && text[0] != '\0') s->why = OPENSSL_strdup(text);
    return err;
}
