"""Envoy: MCP filter, RBAC on method and tool name, local rate limit, SPIFFE mTLS."""

from inputs import READ_TOOL, TRUST_DOMAIN

EXTENSION = "type.googleapis.com/envoy.extensions"
BODY_LIMIT = 4 * 1024 * 1024


def configuration(listen: tuple, upstream: tuple, rules: int, certificates=None) -> dict:
    """`rules` RBAC policies of one tool each; mutual TLS where there are certificates."""
    chain = {
        "filters": [
            {
                "name": "http",
                "typed_config": {
                    "@type": f"{EXTENSION}.filters.network.http_connection_manager.v3"
                    ".HttpConnectionManager",
                    "stat_prefix": "in",
                    "codec_type": "HTTP1",
                    "http_filters": filters(rules),
                    "route_config": {
                        "virtual_hosts": [
                            {
                                "name": "all",
                                "domains": ["*"],
                                "routes": [
                                    {
                                        "match": {"prefix": "/"},
                                        "route": {"cluster": "tools", "timeout": "0s"},
                                    }
                                ],
                            }
                        ]
                    },
                },
            }
        ]
    }
    if certificates:
        chain["transport_socket"] = mutual_tls(certificates)
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "in",
                    "address": address(listen),
                    "per_connection_buffer_limit_bytes": BODY_LIMIT,
                    "filter_chains": [chain],
                }
            ],
            "clusters": [
                {
                    "name": "tools",
                    "type": "STATIC",
                    "per_connection_buffer_limit_bytes": BODY_LIMIT,
                    "load_assignment": {
                        "cluster_name": "tools",
                        "endpoints": [
                            {"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}
                        ],
                    },
                }
            ],
        }
    }


def address(of: tuple) -> dict:
    return {"socket_address": {"address": of[0], "port_value": of[1]}}


def filters(rules: int) -> list:
    return [
        {
            "name": "envoy.filters.http.local_ratelimit",
            "typed_config": {
                "@type": f"{EXTENSION}.filters.http.local_ratelimit.v3.LocalRateLimit",
                "stat_prefix": "limit",
                "token_bucket": {
                    "max_tokens": 1_000_000_000,
                    "tokens_per_fill": 1_000_000_000,
                    "fill_interval": "1s",
                },
                "filter_enabled": {"default_value": {"numerator": 100}},
                "filter_enforced": {"default_value": {"numerator": 100}},
            },
        },
        {
            "name": "envoy.filters.http.mcp",
            "typed_config": {
                "@type": f"{EXTENSION}.filters.http.mcp.v3.Mcp",
                "traffic_mode": "REJECT_NO_MCP",
                "max_request_body_size": BODY_LIMIT,
            },
        },
        {
            "name": "envoy.filters.http.rbac",
            "typed_config": {
                "@type": f"{EXTENSION}.filters.http.rbac.v3.RBAC",
                "rules": {
                    "action": "ALLOW",
                    "policies": {
                        f"{index:05}": policy(tool) for index, tool in enumerate(tools(rules))
                    },
                },
            },
        },
        {
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": f"{EXTENSION}.filters.http.router.v3.Router"},
        },
    ]


def tools(rules: int) -> list:
    """The tool that is called is in the middle: Envoy tries policies in order of their names."""
    names = [f"tool_{index}" for index in range(rules)]
    names[rules // 2] = READ_TOOL
    return names


def policy(tool: str) -> dict:
    def field(*path: str, value: str) -> dict:
        return {
            "sourced_metadata": {
                "metadata_matcher": {
                    "filter": "envoy.filters.http.mcp",
                    "path": [{"key": key} for key in path],
                    "value": {"string_match": {"exact": value}},
                }
            }
        }

    return {
        "permissions": [
            {
                "and_rules": {
                    "rules": [
                        field("method", value="tools/call"),
                        field("params", "name", value=tool),
                    ]
                }
            }
        ],
        "principals": [{"any": True}],
    }


def mutual_tls(certificates) -> dict:
    return {
        "name": "tls",
        "typed_config": {
            "@type": f"{EXTENSION}.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": True,
            "common_tls_context": {
                "tls_certificates": [
                    {
                        "certificate_chain": {"filename": str(certificates / "proxy.pem")},
                        "private_key": {"filename": str(certificates / "proxy.key")},
                    }
                ],
                "validation_context": {
                    "custom_validator_config": {
                        "name": "envoy.tls.cert_validator.spiffe",
                        "typed_config": {
                            "@type": f"{EXTENSION}.transport_sockets.tls.v3"
                            ".SPIFFECertValidatorConfig",
                            "trust_domains": [
                                {
                                    "name": TRUST_DOMAIN,
                                    "trust_bundle": {"filename": str(certificates / "root.pem")},
                                }
                            ],
                        },
                    }
                },
            },
        },
    }
