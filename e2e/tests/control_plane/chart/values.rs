//! Values of the chart: those that people set, and those that cannot work.

/// Values that people set, each on top of the defaults and of [`super::SAID`].
pub(super) const RENDERED: &[&str] = &[
    "{}",
    "{replicas: 1, logLevel: debug, imagePullPolicy: Always, upgradesAtOnce: 3}",
    "{watchNamespaces: [chart-test-a, chart-test-b]}",
    "{metrics: {from: [{kubernetes.io/metadata.name: monitoring}, {team: a, stage: b}]}}",
    "{metrics: {podMonitor: {enabled: true, labels: {release: prometheus}}}}",
    "{metrics: {prometheusRule: {enabled: true, labels: {release: prometheus}}}}",
    "{metrics: {podMonitor: {enabled: true}}, watchNamespaces: [chart-test-a, chart-test-b]}",
    "{images: {operator: '', sidecar: '', prefix: registry.example/team/}, imagePullSecrets: [{name: registry}]}",
    "{sidecar: {imagePullSecrets: [{name: mirror}], resources: {requests: {memory: 64Mi}, limits: {cpu: 1, memory: 256Mi}}}}",
    "{sidecar: {resources: null, imagePullSecrets: null}}",
    "{sidecar: {resources: {limits: {memory: null}, requests: {cpu: null, memory: 0}}}}",
    "{sidecar: {resources: {limits: {memory: 1Gi, cpu: 500m}, requests: {cpu: '0'}}}}",
    // What a sidecar needs at least, and a little more.
    "{sidecar: {resources: {limits: {memory: 16Mi}}}}",
    "{sidecar: {resources: {limits: {memory: 16384Ki}}}}",
    "{sidecar: {resources: {limits: {memory: 0.015625Gi}}}}",
    "{sidecar: {resources: {limits: {memory: '16777216'}}}}",
    "{sidecar: {resources: {limits: {memory: 16777216000m}}}}",
    "{sidecar: {resources: {limits: {memory: 17M}}}}",
    "{crds: {enabled: false}, rbac: {aggregate: false}}",
    "{serviceAccount: {annotations: {a: b}}, podLabels: {a: b}, podAnnotations: {a: b}, priorityClassName: system-cluster-critical}",
    "{catalog: {enabled: false, auth: {none: false}}}",
    "{catalog: {auth: {none: false, apiKeysSecret: readers}, replicas: 1, resources: {}}, watchNamespaces: [chart-test-a]}",
    "{catalog: {from: [{kubernetes.io/metadata.name: portal}], hosts: [catalog.example]}}",
    "{catalog: {hosts: null}}",
    "{sessionKeys: {rotateAfter: '0'}}",
    "{sessionKeys: {rotateAfter: 1h30m10s}}",
    // As Go writes it.
    "{sessionKeys: {rotateAfter: 720h0m0s}}",
    // The values that `--reuse-values` keeps of a release before the keys.
    "{sessionKeys: null}",
    "{commonLabels: {team: tools}, podLabels: {a: b, team: '7'}}",
    "{podDisruptionBudget: {enabled: false}, networkPolicy: {enabled: false}}",
    "{podDisruptionBudget: null, networkPolicy: null, commonLabels: null, nodeSelector: null, metrics: {podMonitor: null}}",
    // As they are where every line below a name is commented out.
    "{metrics: null, serviceAccount: null, rbac: null, crds: null, watchNamespaces: null, sidecar: null}",
    "{clusterDomain: corp.lan}",
    "{nodeSelector: {a: b}, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}, resources: {}}",
    "{affinity: {nodeAffinity: {}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}",
];

/// Values that are refused, and the words of the refusal that name them.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("{replica: 2}", "additional properties 'replica' not allowed"),
    ("{longshore-crds: {enabled: false}}", "additional properties 'enabled' not allowed"),
    ("{replicas: 0}", "at '/replicas'"),
    ("{logLevel: loud}", "at '/logLevel'"),
    ("{upgradesAtOnce: 0}", "at '/upgradesAtOnce'"),
    ("{sessionKeys: {rotateAfter: 59s}}", "at '/sessionKeys/rotateAfter'"),
    ("{sessionKeys: {rotateAfter: 30d}}", "at '/sessionKeys/rotateAfter'"),
    ("{sessionKeys: {rotateAfter: 0h30s}}", "at '/sessionKeys/rotateAfter'"),
    ("{imagePullPolicy: Sometimes}", "at '/imagePullPolicy'"),
    ("{images: {prefix: registry.example}}", "at '/images/prefix'"),
    ("{images: {operator: 'a b'}}", "at '/images/operator'"),
    ("{images: {sidecar: {repository: a}}}", "at '/images/sidecar'"),
    // There are none of these names anywhere.
    ("{images: {operator: ''}}", "say where the images are: set images.operator and images.sidecar"),
    ("{images: {sidecar: ''}}", "images.sidecar is empty"),
    ("{images: null}", "or images.prefix=PREFIX/"),
    ("{watchNamespaces: ['*']}", "at '/watchNamespaces/0'"),
    ("{metrics: {from: [monitoring]}}", "at '/metrics/from/0'"),
    ("{metrics: {from: [{}]}}", "at '/metrics/from/0'"),
    ("{metrics: {podMonitor: true}}", "at '/metrics/podMonitor'"),
    ("{commonLabels: {app.kubernetes.io/name: other}}", "invalid propertyName 'app.kubernetes.io/name'"),
    ("{networkPolicy: {enabled: 'no'}}", "at '/networkPolicy/enabled'"),
    ("{sidecar: {imagePullSecrets: [mirror]}}", "at '/sidecar/imagePullSecrets/0'"),
    ("{sidecar: {resources: {limits: {memory: much}}}}", "at '/sidecar/resources/limits/memory'"),
    (
        "{sidecar: {resources: {limits: {memory: 8Mi}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 1000000}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: '10000000'}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 16777215999m}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 128m}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 16M}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 16.77M}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 16000k}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 10000Ki}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 16383Ki}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    (
        "{sidecar: {resources: {limits: {memory: 0.01Gi}}}}",
        "would be killed before it serves: write 16Mi or more",
    ),
    ("{sidecar: {resources: {limits: {memory: '0'}}}}", "at '/sidecar/resources/limits/memory'"),
    ("{sidecar: {resources: {limits: {cpu: 0}}}}", "at '/sidecar/resources/limits/cpu'"),
    ("{sidecar: {resources: {claims: []}}}", "at '/sidecar/resources'"),
    ("{catalog: {auth: {none: false}}}", "catalog.auth.apiKeysSecret=NAME"),
    ("{catalog: {auth: {none: false}}}", "catalog.auth.none=true"),
    ("{catalog: {auth: null}}", "say who may read the catalog"),
    // The values that `--reuse-values` keeps of a release before the catalog.
    ("{catalog: {enabled: null}}", "upgrade with --reset-then-reuse-values"),
    ("{catalog: {replicas: null}}", "upgrade with --reset-then-reuse-values"),
    ("{catalog: null}", "or write something under `catalog:`"),
    ("{catalog: {auth: {apiKeysSecret: readers}}}", "catalog.auth says two things"),
    ("{catalog: {auth: {jwt: true}}}", "additional properties 'jwt' not allowed"),
    ("{catalog: {auth: {none: 'yes'}}}", "at '/catalog/auth/none'"),
    ("{catalog: {replicas: 0}}", "at '/catalog/replicas'"),
    ("{catalog: {hosts: ['http://catalog.example']}}", "at '/catalog/hosts/0'"),
];
