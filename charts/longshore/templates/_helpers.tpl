{{- /* The name of everything of the operator's. One release a namespace is enough for anybody; still, two of them in
       one namespace get names of their own. */}}
{{- define "longshore.name" -}}
{{- if contains "longshore" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-longshore" (.Release.Name | trunc 30 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "longshore.selector" -}}
app.kubernetes.io/name: longshore
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "longshore.labels" -}}
{{ include "longshore.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "longshore.image.operator" -}}
{{ .Values.images.operator | default (printf "%slongshore:%s" .Values.images.prefix .Chart.AppVersion) }}
{{- end }}

{{- define "longshore.image.sidecar" -}}
{{ .Values.images.sidecar | default (printf "%slongshore-sidecar:%s" .Values.images.prefix .Chart.AppVersion) }}
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
