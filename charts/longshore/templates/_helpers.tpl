{{- /* The name of everything of the operator's. One release a namespace is enough for anybody; still, two of them in
       one namespace get names of their own. Helm lets a release have a name that no Service can have. */}}
{{- define "longshore.name" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) }}
{{- fail (printf "%q cannot be the name of a release of Longshore, since its Services are called by it: choose one that begins with a letter and has lower-case letters, digits and `-` alone" .Release.Name) }}
{{- end }}
{{- if contains "longshore" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-longshore" (.Release.Name | trunc 30 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- /* What is not in a namespace, and still is of each release: those that watch some namespaces may have one name. No
       name of either has a colon. */}}
{{- define "longshore.aggregate" -}}
{{ include "longshore.name" . }}:{{ .Release.Namespace }}
{{- end }}

{{- /* By which the pods of a component are told from all others: the root, and the component. */}}
{{- define "longshore.selector" -}}
app.kubernetes.io/name: longshore
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* What everything of a component is marked with. */}}
{{- define "longshore.labels" -}}
{{ include "longshore.selector" . }}
{{- with index . 0 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Those of its pods. A label that several values name has the nearest one's value, but for what selects. */}}
{{- define "longshore.podLabels" -}}
{{ toYaml (merge (include "longshore.selector" . | fromYaml) ((index . 0).Values.podLabels | default dict) (include "longshore.labels" . | fromYaml)) }}
{{- end }}

{{- /* An image: the root, its name among the values, and the one that it has under the prefix. A name that nobody gave would
       be a stranger's, or nobody's; of the sidecar's the operator would only hear from every server. */}}
{{- define "longshore.image" -}}
{{- $root := index . 0 }}
{{- $images := $root.Values.images | default dict }}
{{- $image := get $images (index . 1) }}
{{- if not (or $image $images.prefix) }}
{{- fail (printf "say where the images are: set images.operator and images.sidecar (`make images` prints their names; images.%s is empty), or images.prefix=PREFIX/ if they are PREFIX/longshore:%s and PREFIX/longshore-sidecar:%s" (index . 1) $root.Chart.AppVersion $root.Chart.AppVersion) }}
{{- end }}
{{- $image | default (printf "%s%s:%s" $images.prefix (index . 2) $root.Chart.AppVersion) }}
{{- end }}

{{- define "longshore.image.operator" -}}
{{ include "longshore.image" (list . "operator" "longshore") }}
{{- end }}

{{- define "longshore.image.sidecar" -}}
{{ include "longshore.image" (list . "sidecar" "longshore-sidecar") }}
{{- end }}

{{- /* What values.yaml has, where a line there was left blank: Helm takes that for no value at all. */}}
{{- define "longshore.imagePullPolicy" -}}
{{ .Values.imagePullPolicy | default "IfNotPresent" }}
{{- end }}

{{- define "longshore.replicas" -}}
{{ .Values.replicas | default 2 }}
{{- end }}

{{- define "longshore.logLevel" -}}
{{ .Values.logLevel | default "info" }}
{{- end }}

{{- /* What any container of Longshore's may do: the restricted Pod Security Standard, and less. */}}
{{- define "longshore.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{- define "longshore.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Whether something is made that is made unless `enabled` is false: the values that `--reuse-values` keeps of an earlier
       release do not say. */}}
{{- define "longshore.isOn" -}}
{{- if ne (toString (. | default dict).enabled) "false" }}true{{ end }}
{{- end }}

{{- /* Sees to it that a sidecar with this memory limit would live: the operator does not start with one that would not. */}}
{{- define "longshore.enoughMemory" -}}
{{- $binary := dict "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 }}
{{- $units := merge (dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "" 1.0) $binary }}
{{- if lt (mulf (regexFind "^[0-9.]+" .) (get $units (regexFind "[a-zA-Z]*$" .))) 16777216.0 }}
{{- fail (printf "with sidecar.resources.limits.memory=%s a sidecar would be killed before it serves: write 16Mi or more" .) }}
{{- end }}
{{- end }}

{{- /* The images are for Linux. */}}
{{- define "longshore.nodeSelector" -}}
{{ toYaml (merge (dict) (.Values.nodeSelector | default dict) (dict "kubernetes.io/os" "linux")) }}
{{- end }}

{{- /* Where the pods of a component go: the root, and the component. A constraint that does not say which pods it is about
       is about these. */}}
{{- define "longshore.placement" -}}
{{- $root := index . 0 }}
{{- $values := $root.Values }}
{{- $own := dict "matchLabels" (include "longshore.selector" . | fromYaml) }}
nodeSelector: {{- include "longshore.nodeSelector" $root | nindent 2 }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $spread := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
topologySpreadConstraints:
{{- range $values.topologySpreadConstraints | default (list $spread) }}
{{- $constraint := hasKey . "labelSelector" | ternary (dict) (dict "labelSelector" $own) }}
  - {{- toYaml (merge (dict) . $constraint) | nindent 4 }}
{{- end }}
{{- end }}

{{- /* Whether there is a catalog. What every template asks first, so it is also where the values of an older chart are
       noticed, which has no catalog at all. A blank `catalog:` looks the same. */}}
{{- define "longshore.catalog.enabled" -}}
{{- $catalog := .Values.catalog | default dict }}
{{- if not (and (hasKey $catalog "enabled") (hasKey $catalog "replicas")) }}
{{- fail "these values are those of an older chart: upgrade with --reset-then-reuse-values instead of --reuse-values, or write something under `catalog:`" }}
{{- end }}
{{- if $catalog.enabled }}true{{ end }}
{{- end }}

{{- define "longshore.catalog.name" -}}
{{ include "longshore.name" . }}-catalog
{{- end }}

{{- /* The Secret with the catalog's API keys; empty where everybody may read it. Who may is never assumed. */}}
{{- define "longshore.catalog.apiKeysSecret" -}}
{{- $auth := .Values.catalog.auth | default dict }}
{{- if and $auth.none $auth.apiKeysSecret }}
{{- fail "catalog.auth says two things: set catalog.auth.none=true to let everybody read the catalog, or catalog.auth.apiKeysSecret=NAME for callers with a key, not both" }}
{{- end }}
{{- if not (or $auth.none $auth.apiKeysSecret) }}
{{- fail "say who may read the catalog: set catalog.auth.apiKeysSecret=NAME, a Secret in this namespace with a key for each caller (`longshore key new` makes one), or catalog.auth.none=true to let everybody in who reaches it, or catalog.enabled=false to have no catalog" }}
{{- end }}
{{- $auth.apiKeysSecret }}
{{- end }}
