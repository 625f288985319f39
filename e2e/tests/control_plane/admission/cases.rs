//! The manifests: what is merged into the least that is a server, and the sentence that refuses it.

/// What is taken.
pub(super) const ACCEPTED: &[&str] = &[
    "{}",
    "{metadata: {name: a2345678901234567890123456789012345678901234567890}}",
    "{spec: {source: {command: [/server], args: [--http], imagePullPolicy: Never}}}",
    "{spec: {source: {env: [{name: A, value: a}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}], envFrom: [{configMapRef: {name: c}}]}}}",
    "{spec: {transport: {streamableHttp: {port: 1, path: /}}}}",
    "{spec: {transport: {streamableHttp: {port: 15383, path: '/a/b-c_d.e~f/%20'}}}}",
    "{spec: {transport: {streamableHttp: null, sse: {port: 3000}, protocol: '2025-11-25'}}}",
    "{spec: {transport: {protocol: '2026-07-28'}}}",
    "{spec: {transport: {streamableHttp: null, sse: {port: 3000}}}}",
    "{spec: {transport: {streamableHttp: null, sse: {port: 3000, path: /a/sse}}}}",
    "{spec: {source: {command: [/server]}, transport: {streamableHttp: null, stdio: {}}}}",
    "{spec: {source: {command: [/server]}, transport: {streamableHttp: null, stdio: {isolation: Session, maxProcesses: 1024, maxProcessesPerPrincipal: 1024}}}}",
    "{spec: {catalog: {publish: false}}}",
    "{spec: {catalog: {title: A, description: B, owner: team-a, tags: [issues, a.b_c-1], links: [{title: Runbook, url: 'https://wiki.example.com/a?b=c#d'}, {title: Docs, url: 'http://docs.example.com'}]}}}",
    "{spec: {auth: {none: null, apiKeys: {secretRef: {name: keys.v1}}}}}",
    "{spec: {access: {rules: [{name: a, tools: ['*']}, {name: B.2_c-d, prompts: ['?'], principals: ['al*']}, {name: c, resources: ['file:///{a,b}/[x-z]*', '\\[']}]}}}",
    "{spec: {tools: {include: ['get_*', '[!a]b'], exclude: ['{a,b}_c']}}}",
    "{spec: {limits: {requestBytes: 32Mi, requestTimeout: 1h}}}",
    "{spec: {limits: {requestBytes: '1024', requestTimeout: 1m0s100ms}}}",
    "{spec: {expose: {host: tools.example.com, allowedOrigins: ['https://app.example.com', 'http://localhost:6274', 'http://[::1]:80', 'vscode-webview://abc']}}}",
    "{spec: {pod: {metadata: {labels: {example.com/team: a, mylongshore.dev/b: c}, annotations: {app.kubernetes.io/name: a}}}}}",
    "{spec: {pod: {volumes: [{name: data, emptyDir: {sizeLimit: 1Gi}}], volumeMounts: [{name: data, mountPath: /run/longshore2}, {name: data, mountPath: /etc/server}, {name: data, mountPath: /data/..b, readOnly: true}]}}}",
    "{spec: {pod: {resources: {requests: {cpu: 1, memory: 128Mi}, limits: {example.com/gpu: 1}}, nodeSelector: {a: b}, tolerations: [{operator: Exists}]}}}",
    "{spec: {pod: {securityContext: {runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, runAsNonRoot: true}, serviceAccountName: a.b, imagePullSecrets: [{name: a}]}}}",
    "{spec: {pod: {affinity: {nodeAffinity: {}}, overrides: {metadata: {labels: {a: b}}, spec: {priorityClassName: high, hostNetwork: false, containers: [{name: server, tty: true}]}}}}}",
    "{spec: {replicas: 0}}",
    "{spec: {replicas: 100, sessions: {idleTimeout: 1s, maxAge: 720h, total: 1, perPrincipal: 1, streams: 1024, onOwnerLoss: Reinitialize, resume: {maxBytes: '0', ttl: 1h}}}}",
    "{spec: {sessions: {idleTimeout: 1h30m, resume: {maxBytes: 16Mi}}}}",
    // As Go writes times.
    "{spec: {sessions: {idleTimeout: 30m0s, maxAge: 24h0m0s, resume: {ttl: 5m0s}}, limits: {requestTimeout: 1m0s}}}",
    "{spec: {source: {command: [/server]}, transport: {streamableHttp: null, stdio: {isolation: Principal, warm: 32, queueTimeout: 0s, idleTimeout: 720h, maxAge: 1s}}}}",
    "{spec: {source: {command: [/server]}, transport: {streamableHttp: null, stdio: {isolation: Shared, maxProcesses: 1, queueTimeout: 5m}}}}",
    "{spec: {sidecar: {logLevel: trace, workers: 64, resources: {limits: {memory: 256Mi}}}}}",
];

/// What is refused, with the field and what to write instead.
pub(super) const REFUSED: &[(&str, &str)] = &[
    // What has to be there.
    (
        "{spec: {source: null}}",
        "spec.source: Required value: say what to run: write `source: {image: IMAGE}`",
    ),
    (
        "{spec: {source: {image: null}}}",
        "spec.source.image: Required value: name the container image to run, without spaces, such as `registry.example/team/server:1.4.0`",
    ),
    ("{spec: {source: {image: ''}}}", "spec.source.image: Required value: name the container image to run"),
    (
        "{spec: {source: {image: 'a b'}}}",
        "spec.source.image: Required value: name the container image to run, without spaces",
    ),
    (
        "{spec: {transport: null}}",
        "spec.transport: Required value: say how the server is reached: write `transport: {streamableHttp: {port: 3000}}` with the port that it listens on, or `transport: {stdio: {}}` for a program that speaks over its stdin and stdout",
    ),
    (
        "{spec: {transport: {streamableHttp: null}}}",
        "spec.transport: Required value: say how the server is reached: write `streamableHttp: {port: 3000}` with the port that it listens on, `sse: {port: 3000}` if what it speaks there is HTTP+SSE, or `stdio: {}` for a program that speaks over its stdin and stdout",
    ),
    (
        "{spec: {transport: {streamableHttp: {port: null}}}}",
        "spec.transport.streamableHttp.port: Required value",
    ),
    (
        "{spec: {transport: {protocol: '2025-01-01'}}}",
        "spec.transport.protocol: Unsupported value: \"2025-01-01\": supported values: \"2024-11-05\", \"2025-03-26\", \"2025-06-18\", \"2025-11-25\", \"2026-07-28\"",
    ),
    (
        "{spec: {auth: null}}",
        "spec.auth: Required value: say who may call: write `auth: {apiKeys: {secretRef: {name: SECRET}}}` for callers with a key, or `auth: {none: {}}` to let everybody in",
    ),
    (
        "{spec: {auth: {none: null}}}",
        "spec.auth: Required value: say who may call: write `apiKeys: {secretRef: {name: SECRET}}` for callers with a key, or `none: {}` to let everybody in",
    ),
    (
        "{spec: {auth: {apiKeys: {secretRef: {name: keys}}}}}",
        "spec.auth: Invalid value: \"object\": write `none` or `apiKeys`, not both",
    ),
    (
        "{spec: {auth: {none: null, apiKeys: {secretRef: {name: Keys}}}}}",
        "spec.auth.apiKeys.secretRef.name: Invalid value: \"string\": write the name of a Secret in the server's namespace: lower-case letters, digits, `-` and `.`",
    ),
    // What nobody knows.
    ("{spec: {replica: 2}}", "unknown field \"spec.replica\""),
    (
        "{spec: {transport: {streamableHttp: {prot: 1}}}}",
        "unknown field \"spec.transport.streamableHttp.prot\"",
    ),
    // Names.
    (
        "{metadata: {name: a.b}}",
        "metadata.name is the name of the server's Service too: write at most 50 lower-case letters, digits and `-`, beginning with a letter",
    ),
    ("{metadata: {name: 1a}}", "metadata.name is the name of the server's Service too"),
    (
        "{metadata: {name: a23456789012345678901234567890123456789012345678901}}",
        "metadata.name is the name of the server's Service too",
    ),
    // The source.
    (
        "{spec: {source: {imagePullPolicy: Sometimes}}}",
        "spec.source.imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
    ),
    (
        "{spec: {source: {env: [{name: A}, {name: A}]}}}",
        "spec.source.env[1]: Duplicate value: {\"name\":\"A\"}",
    ),
    // The transport.
    (
        "{spec: {transport: {streamableHttp: {port: 0}}}}",
        "spec.transport.streamableHttp.port: Invalid value: 0",
    ),
    (
        "{spec: {transport: {streamableHttp: {port: 65536}}}}",
        "spec.transport.streamableHttp.port: Invalid value: 65536",
    ),
    (
        "{spec: {transport: {stdio: {}}}}",
        "spec.transport: Invalid value: \"object\": write one of `streamableHttp`, `sse` and `stdio`: the server is reached in one way",
    ),
    (
        "{spec: {transport: {sse: {port: 3000}}}}",
        "spec.transport: Invalid value: \"object\": write one of `streamableHttp`, `sse` and `stdio`",
    ),
    (
        "{spec: {transport: {streamableHttp: null, sse: {port: 3000}, protocol: '2026-07-28'}}}",
        "spec.transport: Invalid value: \"object\": leave `protocol` out: no server speaks 2026-07-28 over HTTP+SSE",
    ),
    (
        "{spec: {transport: {streamableHttp: null, sse: {port: 15381}}}}",
        "spec.transport.sse.port: Invalid value: \"integer\": the ports 15380, 15381 and 15382 are the sidecar's: let the server listen on another, such as 3000",
    ),
    (
        "{spec: {transport: {streamableHttp: null, sse: {port: 3000, path: '/sse?a=b'}}}}",
        "spec.transport.sse.path: Invalid value: \"string\": write the path alone, beginning with / and without a query, such as `/sse`",
    ),
    (
        "{spec: {transport: {streamableHttp: null, stdio: {}}}}",
        "spec.source.command: Required value: name the program to start: `command: [PROGRAM]`, since a stdio server is started once a session and its image's entry point cannot be known from here",
    ),
    (
        "{spec: {source: {command: []}, transport: {streamableHttp: null, stdio: {}}}}",
        "spec.source.command: Required value: name the program to start: `command: [PROGRAM]`",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {maxProcesses: 0}}}}",
        "spec.transport.stdio.maxProcesses: Invalid value: 0",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {maxProcesses: 2, maxProcessesPerPrincipal: 3}}}}",
        "spec.transport.stdio: Invalid value: \"object\": `maxProcessesPerPrincipal` may not be more than `maxProcesses`",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {isolation: Nobody}}}}",
        "spec.transport.stdio.isolation: Unsupported value: \"Nobody\": supported values: \"Session\", \"Principal\", \"Shared\"",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {isolation: Shared, maxProcessesPerPrincipal: 1}}}}",
        "spec.transport.stdio: Invalid value: \"object\": leave `maxProcessesPerPrincipal` out: with `isolation: Shared` a process is nobody's own",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {maxProcesses: 2, warm: 3}}}}",
        "spec.transport.stdio: Invalid value: \"object\": `warm` may not be more than `maxProcesses`, of which the warm ones are a part",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {queueTimeout: 301s}}}}",
        "spec.transport.stdio.queueTimeout: Invalid value: \"string\": write a time from 0s to 5m, such as `10s`",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {idleTimeout: 0s}}}}",
        "spec.transport.stdio.idleTimeout: Invalid value: \"string\": write a time from 1s to 720h, such as `90s`, `30m` or `24h`",
    ),
    (
        "{spec: {source: {command: [a]}, transport: {streamableHttp: null, stdio: {maxAge: 721h}}}}",
        "spec.transport.stdio.maxAge: Invalid value: \"string\": write a time from 1s to 720h",
    ),
    // Replicas and sessions.
    ("{spec: {replicas: -1}}", "spec.replicas: Invalid value: -1"),
    ("{spec: {replicas: 101}}", "spec.replicas: Invalid value: 101"),
    (
        "{spec: {sessions: {total: 5, perPrincipal: 6}}}",
        "spec.sessions: Invalid value: \"object\": `perPrincipal` may not be more than `total`",
    ),
    ("{spec: {sessions: {total: 0}}}", "spec.sessions.total: Invalid value: 0"),
    (
        "{spec: {sessions: {idleTimeout: 500ms}}}",
        "spec.sessions.idleTimeout: Invalid value: \"string\": write a time from 1s to 720h",
    ),
    (
        "{spec: {sessions: {maxAge: 30d}}}",
        "spec.sessions.maxAge: Invalid value: \"string\": write a time from 1s to 720h",
    ),
    (
        "{spec: {sessions: {onOwnerLoss: Retry}}}",
        "spec.sessions.onOwnerLoss: Unsupported value: \"Retry\": supported values: \"NotFound\", \"Reinitialize\"",
    ),
    (
        "{spec: {sessions: {resume: {maxBytes: 17Mi}}}}",
        "spec.sessions.resume.maxBytes: Invalid value: \"string\": write a whole number of bytes from 0 to 16Mi, such as `1Mi`",
    ),
    (
        "{spec: {sessions: {resume: {ttl: 2h}}}}",
        "spec.sessions.resume.ttl: Invalid value: \"string\": write a time from 1s to 1h, such as `5m`",
    ),
    // The catalog.
    (
        "{spec: {catalog: {tags: [Issues]}}}",
        "spec.catalog.tags: Invalid value: \"array\": write tags of lower-case letters, digits, `-`, `_` and `.`, such as `issues`",
    ),
    ("{spec: {catalog: {tags: [a, a]}}}", "spec.catalog.tags[1]: Duplicate value: \"a\""),
    (
        "{spec: {catalog: {links: [{title: A, url: 'javascript:alert(1)'}]}}}",
        "spec.catalog.links[0].url: Invalid value: \"string\": write an address that begins with https:// or http://",
    ),
    ("{spec: {catalog: {links: [{url: 'https://a'}]}}}", "spec.catalog.links[0].title: Required value"),
    (
        "{spec: {transport: {streamableHttp: {port: 15380}}}}",
        "spec.transport.streamableHttp.port: Invalid value: \"integer\": the ports 15380, 15381 and 15382 are the sidecar's: let the server listen on another, such as 3000",
    ),
    (
        "{spec: {transport: {streamableHttp: {port: 15381}}}}",
        "the ports 15380, 15381 and 15382 are the sidecar's",
    ),
    (
        "{spec: {transport: {streamableHttp: {port: 15382}}}}",
        "the ports 15380, 15381 and 15382 are the sidecar's",
    ),
    (
        "{spec: {transport: {streamableHttp: {path: mcp}}}}",
        "spec.transport.streamableHttp.path: Invalid value: \"string\": write the path alone, beginning with / and without a query, such as `/mcp`",
    ),
    ("{spec: {transport: {streamableHttp: {path: '/mcp?a'}}}}", "write the path alone"),
    ("{spec: {transport: {streamableHttp: {path: '/mcp#a'}}}}", "write the path alone"),
    ("{spec: {transport: {streamableHttp: {path: '/m cp'}}}}", "write the path alone"),
    ("{spec: {transport: {streamableHttp: {path: '/a<b'}}}}", "write the path alone"),
    ("{spec: {transport: {streamableHttp: {path: '/a`b'}}}}", "write the path alone"),
    ("{spec: {transport: {streamableHttp: {path: ''}}}}", "write the path alone"),
    // Access.
    (
        "{spec: {access: {rules: [{name: a}]}}}",
        "spec.access.rules[0]: Invalid value: \"object\": the rule permits nothing: name something in `tools`, `prompts` or `resources`, such as `tools: [\"get_*\"]`",
    ),
    ("{spec: {access: {rules: [{name: a, tools: []}]}}}", "the rule permits nothing"),
    ("{spec: {access: {rules: [{tools: ['*']}]}}}", "spec.access.rules[0].name: Required value"),
    (
        "{spec: {access: {rules: [{name: 'a b', tools: ['*']}]}}}",
        "spec.access.rules[0].name: Invalid value: \"string\": write a name of letters, digits, `-`, `_` and `.`, such as `readers`",
    ),
    (
        "{spec: {access: {rules: [{name: a, tools: ['*']}, {name: a, prompts: ['*']}]}}}",
        "spec.access.rules: Invalid value: \"array\": two rules have the same name: the audit log tells them apart by it, so give each its own",
    ),
    (
        "{spec: {access: {rules: [{name: a, tools: ['*'], principals: []}]}}}",
        "spec.access.rules[0].principals: Invalid value: \"array\": an empty list permits nobody: leave `principals` out for every authenticated caller, or name some",
    ),
    (
        "{spec: {access: {rules: [{name: a, tools: [ok, '[a']}]}}}",
        "spec.access.rules[0].tools[1]: Invalid value: \"string\": write a glob such as `get_*`: `[` needs its `]`, `{` its `}`, braces do not nest, and a backslash escapes the next character",
    ),
    (
        "{spec: {access: {rules: [{name: a, prompts: ['{a']}]}}}",
        "spec.access.rules[0].prompts[0]: Invalid value: \"string\": write a glob",
    ),
    (
        "{spec: {access: {rules: [{name: a, resources: ['a}']}]}}}",
        "spec.access.rules[0].resources[0]: Invalid value: \"string\": write a glob",
    ),
    (
        "{spec: {access: {rules: [{name: a, tools: ['*'], principals: ['']}]}}}",
        "spec.access.rules[0].principals[0]: Invalid value: \"string\": write a glob",
    ),
    (
        "{spec: {tools: {include: ['{a,{b}}']}}}",
        "spec.tools.include[0]: Invalid value: \"string\": write a glob",
    ),
    ("{spec: {tools: {exclude: ['a\\']}}}", "spec.tools.exclude[0]: Invalid value: \"string\": write a glob"),
    // Limits.
    (
        "{spec: {limits: {requestBytes: 33Mi}}}",
        "spec.limits.requestBytes: Invalid value: \"string\": write a whole number of bytes from 1Ki to 32Mi, with or without a unit (k, M, Ki, Mi), such as `4Mi`",
    ),
    ("{spec: {limits: {requestBytes: '1000'}}}", "write a whole number of bytes"),
    ("{spec: {limits: {requestBytes: 1.5Mi}}}", "write a whole number of bytes"),
    ("{spec: {limits: {requestBytes: 4194304}}}", "spec.limits.requestBytes in body must be of type string"),
    (
        "{spec: {limits: {requestTimeout: 99ms}}}",
        "spec.limits.requestTimeout: Invalid value: \"string\": write a time from 100ms to 1h in the units ms, s, m and h, such as `60s` or `1m30s`",
    ),
    ("{spec: {limits: {requestTimeout: 61m}}}", "write a time from 100ms to 1h"),
    ("{spec: {limits: {requestTimeout: '60'}}}", "write a time from 100ms to 1h"),
    ("{spec: {limits: {requestTimeout: 0.5h}}}", "write a time from 100ms to 1h"),
    // Names to the outside.
    (
        "{spec: {expose: {host: 'https://a.example'}}}",
        "spec.expose.host: Invalid value: \"string\": write the host name alone, in lower case, without scheme, port and path, such as `tools.example.com`",
    ),
    ("{spec: {expose: {host: 'a.example:80'}}}", "write the host name alone"),
    ("{spec: {expose: {host: A.example}}}", "write the host name alone"),
    (
        "{spec: {expose: {allowedOrigins: ['https://a.example', 'b.example']}}}",
        "spec.expose.allowedOrigins[1]: Invalid value: \"string\": write the origin as a browser sends it, `scheme://host[:port]` in lower case and without a path, such as `https://app.example.com`; wildcards are not supported",
    ),
    ("{spec: {expose: {allowedOrigins: ['https://a.example/']}}}", "write the origin as a browser sends it"),
    ("{spec: {expose: {allowedOrigins: ['*']}}}", "write the origin as a browser sends it"),
    ("{spec: {expose: {allowedOrigins: ['null']}}}", "write the origin as a browser sends it"),
    (
        "{spec: {expose: {service: {labels: {app.kubernetes.io/name: a}}}}}",
        "spec.expose.service.labels: Invalid value: \"object\": labels of longshore.dev and app.kubernetes.io are Longshore's: use a prefix of your own",
    ),
    (
        "{spec: {expose: {service: {annotations: {longshore.dev/a: a}}}}}",
        "annotations of longshore.dev are Longshore's",
    ),
    (
        "{spec: {strategy: {type: OnDelete}}}",
        "spec.strategy.type: Unsupported value: \"OnDelete\": supported values: \"RollingUpdate\", \"Recreate\"",
    ),
    // The pod.
    (
        "{spec: {expose: {service: {labels: {team: Platform Team}}}}}",
        "spec.expose.service.labels.team: Invalid value: \"Platform Team\"",
    ),
    ("{spec: {pod: {nodeSelector: {disk: -ssd}}}}", "spec.pod.nodeSelector.disk: Invalid value: \"-ssd\""),
    (
        "{spec: {pod: {metadata: {labels: {longshore.dev/server: a}}}}}",
        "spec.pod.metadata.labels: Invalid value: \"object\": labels of longshore.dev and app.kubernetes.io are Longshore's: use a prefix of your own",
    ),
    (
        "{spec: {pod: {metadata: {labels: {app.kubernetes.io/name: a}}}}}",
        "labels of longshore.dev and app.kubernetes.io are Longshore's",
    ),
    (
        "{spec: {pod: {metadata: {annotations: {a.longshore.dev/b: a}}}}}",
        "spec.pod.metadata.annotations: Invalid value: \"object\": annotations of longshore.dev are Longshore's: use a prefix of your own",
    ),
    (
        "{spec: {pod: {serviceAccountName: A}}}",
        "spec.pod.serviceAccountName: Invalid value: \"string\": write the name of a ServiceAccount in the server's namespace: lower-case letters, digits, `-` and `.`",
    ),
    (
        "{spec: {pod: {resources: {limits: {memory: lots}}}}}",
        "spec.pod.resources.limits[memory]: Invalid value: \"\": write an amount such as `250m` of CPU or `128Mi` of memory",
    ),
    (
        "{spec: {pod: {securityContext: {runAsUser: 15380}}}}",
        "spec.pod.securityContext.runAsUser: Invalid value: \"integer\": 15380 is the sidecar's user: choose another, such as 10001",
    ),
    (
        "{spec: {pod: {securityContext: {runAsUser: 0}}}}",
        "spec.pod.securityContext.runAsUser: Invalid value: \"integer\": 0 is root: choose another user, such as 10001, or leave runAsUser out",
    ),
    (
        "{spec: {pod: {securityContext: {runAsNonRoot: false}}}}",
        "spec.pod.securityContext.runAsNonRoot: Invalid value: \"boolean\": leave runAsNonRoot out: a server may not run as root",
    ),
    (
        "{spec: {pod: {securityContext: {fsGroup: 15380}}}}",
        "spec.pod.securityContext.fsGroup: Invalid value: \"integer\": 15380 is the sidecar's group",
    ),
    (
        "{spec: {pod: {securityContext: {runAsGroup: 15380}}}}",
        "spec.pod.securityContext.runAsGroup: Invalid value: \"integer\": 15380 is the sidecar's group: choose another, such as 10001",
    ),
    (
        "{spec: {pod: {volumes: [{name: longshore-keys, emptyDir: {}}]}}}",
        "spec.pod.volumes[0].name: Invalid value: \"string\": volumes named `longshore-...` are Longshore's: choose another name",
    ),
    ("{spec: {pod: {volumes: [{emptyDir: {}}]}}}", "spec.pod.volumes[0].name: Required value"),
    (
        "{spec: {pod: {volumeMounts: [{name: longshore-keys, mountPath: /keys}]}}}",
        "spec.pod.volumeMounts[0].name: Invalid value: \"string\": volumes named `longshore-...` are Longshore's",
    ),
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /run/longshore/sockets}]}}}",
        "spec.pod.volumeMounts[0].mountPath: Invalid value: \"string\": /run/longshore and /etc/longshore are Longshore's and may not be hidden: mount the volume elsewhere, such as at `/data`",
    ),
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /etc/longshore}]}}}",
        "/run/longshore and /etc/longshore are Longshore's",
    ),
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /run}]}}}",
        "/run/longshore and /etc/longshore are Longshore's",
    ),
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /etc/}]}}}",
        "/run/longshore and /etc/longshore are Longshore's",
    ),
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /}]}}}",
        "/run/longshore and /etc/longshore are Longshore's",
    ),
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /etc//longshore}]}}}",
        "spec.pod.volumeMounts[0].mountPath: Invalid value: \"string\": write an absolute path without `//`, `.` and `..`, such as `/data`",
    ),
    ("{spec: {pod: {volumeMounts: [{name: a, mountPath: /a/../run/longshore}]}}}", "write an absolute path"),
    ("{spec: {pod: {volumeMounts: [{name: a, mountPath: data}]}}}", "write an absolute path"),
    // Kubernetes would refuse the pod: it is for privileged containers.
    (
        "{spec: {pod: {volumeMounts: [{name: a, mountPath: /a, mountPropagation: Bidirectional}]}}}",
        "spec.pod.volumeMounts[0].mountPropagation: Unsupported value: \"Bidirectional\": supported values: \"None\", \"HostToContainer\"",
    ),
    // The part of a pod that is merged.
    (
        "{spec: {pod: {overrides: {spec: {containers: [{name: longshore-sidecar, image: mine}]}}}}}",
        "spec.pod.overrides.spec.containers[0].name: Invalid value: \"string\": the container `longshore-sidecar` may not be changed here: its settings are in spec.sidecar, and the server's container is named `server`",
    ),
    (
        "{spec: {pod: {overrides: {spec: {initContainers: [{name: longshore-sidecar, image: mine}]}}}}}",
        "spec.pod.overrides.spec.initContainers[0].name: Invalid value: \"string\": the container `longshore-sidecar` may not be changed here",
    ),
    (
        "{spec: {pod: {overrides: {spec: {containers: [{image: mine}]}}}}}",
        "spec.pod.overrides.spec.containers[0].name: Required value",
    ),
    (
        "{spec: {pod: {overrides: {spec: {volumes: [{name: longshore-sockets, emptyDir: {}}]}}}}}",
        "spec.pod.overrides.spec.volumes[0].name: Invalid value: \"string\": volumes named `longshore-...` are Longshore's",
    ),
    (
        "{spec: {pod: {overrides: {spec: {hostNetwork: true}}}}}",
        "spec.pod.overrides.spec.hostNetwork: Invalid value: \"boolean\": leave hostNetwork out: a server may not share the network with its node",
    ),
    (
        "{spec: {pod: {overrides: {spec: {hostPID: true}}}}}",
        "leave hostPID out: a server may not share processes with its node",
    ),
    (
        "{spec: {pod: {overrides: {spec: {hostIPC: true}}}}}",
        "leave hostIPC out: a server may not share memory with its node",
    ),
    // The sidecar.
    ("{spec: {sidecar: {workers: 0}}}", "spec.sidecar.workers: Invalid value: 0"),
    (
        "{spec: {sidecar: {logLevel: loud}}}",
        "spec.sidecar.logLevel: Unsupported value: \"loud\": supported values: \"error\", \"warn\", \"info\", \"debug\", \"trace\"",
    ),
];
