//! Servers and clients that others wrote: through the sidecar and directly, with the same result.
