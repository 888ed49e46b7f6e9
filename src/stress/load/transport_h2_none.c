/* transport_h2_none.c - a build without nghttp2 has no HTTP/2. */
#include "stress/load/transport.h"

const ls_stress_transport *const ls_stress_h2_transport = NULL;
