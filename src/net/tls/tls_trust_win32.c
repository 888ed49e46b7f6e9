/* tls_trust_win32.c - see tls_trust.h: the system store ROOT of the account, which contains that of the machine. Left
 * out are certificates whose enhanced key usage excludes servers, and those that are in the store Disallowed as
 * well. */
#include "net/tls/tls_trust.h"

#include <windows.h>
/* the order of these is significant */
#include <wincrypt.h>

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* NULL: GetLastError. */
static HCERTSTORE open_store(const wchar_t *name)
{
    return CertOpenStore(CERT_STORE_PROV_SYSTEM_W, 0, 0, CERT_SYSTEM_STORE_CURRENT_USER | CERT_STORE_READONLY_FLAG,
                         name);
}

/* Without an enhanced key usage, in the certificate or as a property in the store, all uses are allowed. */
static bool is_for_servers(PCCERT_CONTEXT cert)
{
    DWORD bytes = 0;
    if (!CertGetEnhancedKeyUsage(cert, 0, NULL, &bytes)) return GetLastError() == (DWORD)CRYPT_E_NOT_FOUND;
    CERT_ENHKEY_USAGE *usage = malloc(bytes);
    bool found = false;
    if (usage != NULL && CertGetEnhancedKeyUsage(cert, 0, usage, &bytes)) {
        found = usage->cUsageIdentifier == 0 && GetLastError() == (DWORD)CRYPT_E_NOT_FOUND;
        for (DWORD i = 0; i < usage->cUsageIdentifier && !found; i++)
            found = strcmp(usage->rgpszUsageIdentifier[i], szOID_PKIX_KP_SERVER_AUTH) == 0;
    }
    free(usage);
    return found;
}

static bool is_in(HCERTSTORE store, PCCERT_CONTEXT cert)
{
    if (store == NULL) return false;
    PCCERT_CONTEXT found = CertFindCertificateInStore(store, X509_ASN_ENCODING, 0, CERT_FIND_EXISTING, cert, NULL);
    if (found != NULL) CertFreeCertificateContext(found);
    return found != NULL;
}

int ls_tls_trust_each(ls_tls_trust_add *add, void *user)
{
    HCERTSTORE root = open_store(L"ROOT"), disallowed = open_store(L"Disallowed");
    PCCERT_CONTEXT cert = NULL;
    int err = LS_OK;
    if (disallowed == NULL && GetLastError() != ERROR_FILE_NOT_FOUND) err = LS_ESYS;
    if (root == NULL) err = LS_ESYS;
    while (err == LS_OK && (cert = CertEnumCertificatesInStore(root, cert)) != NULL) {
        if (!(cert->dwCertEncodingType & X509_ASN_ENCODING) || !is_for_servers(cert) || is_in(disallowed, cert))
            continue;
        if (!add(user, cert->pbCertEncoded, cert->cbCertEncoded)) err = LS_ESYS;
    }
    if (err != LS_OK && cert != NULL) CertFreeCertificateContext(cert); /* else the enumeration freed it */
    if (disallowed != NULL) CertCloseStore(disallowed, 0);
    if (root != NULL) CertCloseStore(root, 0);
    return err;
}
