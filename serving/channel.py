"""How a client connects: retries, balancing and keepalive, for both kinds of client."""

import json

# Once, and not while most calls fail: retries must not be the load that keeps a server down. CANCELLED is what a server
# that stops gives to calls it has not begun; a call that the caller cancels is not tried again.
_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{"service": "rewriter.v1.RewriterService"}],
            "retryPolicy": {
                "maxAttempts": 2,
                "initialBackoff": "0.02s",
                "maxBackoff": "0.1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
}

CHANNEL_OPTIONS = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # A client has a connection of its own; gRPC would share one among all clients of a process.
    ("grpc.use_local_subchannel_pool", 1),
    # Finds dead connections in half a minute; the server allows a ping every ten seconds.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
