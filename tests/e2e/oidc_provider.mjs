// The package oidc-provider for test_oidc_npm.py: {port, site, secret, keys: {name: PEM}} on stdin; prints a line when it listens.
import { createPrivateKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const { port, site, secret, keys } = JSON.parse(readFileSync(0, "utf8"));
const client = (id, algorithm, more) => ({
  client_id: id, client_secret: secret, redirect_uris: [`${site}/${id}/callback`], post_logout_redirect_uris: [`${site}/${id}/bye`],
  grant_types: ["authorization_code", "refresh_token"], response_types: ["code"], id_token_signed_response_alg: algorithm, ...more,
});
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [client("rsa", "RS256"), client("ec", "ES256"), client("ed", "EdDSA"), client("api", "RS256"),
    client("post", "RS256", { token_endpoint_auth_method: "client_secret_post" }),
    client("public", "RS256", { token_endpoint_auth_method: "none", client_secret: undefined })],
  jwks: { keys: Object.entries(keys).map(([kid, pem]) => ({ ...createPrivateKey(pem).export({ format: "jwk" }), kid, use: "sig" })) },
  cookies: { keys: ["a key of the tests"] },
  claims: { profile: ["name"], email: ["email", "email_verified"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: `Name of ${id}`, email: `${id}@id.example`, email_verified: true }) }),
  enabledJWA: { idTokenSigningAlgValues: ["RS256", "ES256", "EdDSA"] },
  pkce: { required: () => true },
  features: {
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true, useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: "read", audience: "urn:api", accessTokenFormat: "jwt" }),
    },
  },
});
provider.listen(port, "127.0.0.1", () => console.log("listening"));
