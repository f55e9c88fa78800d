{{- /* At most 52 characters, here and below, so that what is appended fits a label. */ -}}
{{- define "amqsidecar.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "amqsidecar.fullname" -}}
{{- $name := include "amqsidecar.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "amqsidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ include "amqsidecar.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "amqsidecar.listenerLabels" -}}
app.kubernetes.io/name: {{ printf "%s-listener" (include "amqsidecar.name" .) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "amqsidecar.labels" -}}
{{ include "amqsidecar.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- /*
The metadata of an object: `list ROOT SUFFIX OWN...`. SUFFIX follows the full name; each of OWN may have `labels` and `annotations`,
earlier ones go before later ones, and all before `commonLabels` and `commonAnnotations`. The chart's own labels go before all.
*/ -}}
{{- define "amqsidecar.metadata" -}}
{{- $root := index . 0 -}}
name: {{ printf "%s%s" (include "amqsidecar.fullname" $root) (index . 1) | quote }}
{{ include "amqsidecar.marks" (concat (list $root (include "amqsidecar.labels" $root | fromYaml)) (slice . 2)) }}
{{- end -}}

{{- /* Labels and annotations: `list ROOT LABELS OWN...`. LABELS go before all others. */ -}}
{{- define "amqsidecar.marks" -}}
{{- $root := index . 0 -}}
{{- $labels := merge (dict) (index . 1) -}}
{{- $annotations := dict -}}
{{- range append (slice . 2) (dict "labels" $root.Values.commonLabels "annotations" $root.Values.commonAnnotations) -}}
{{- $labels = merge $labels (.labels | default dict) -}}
{{- $annotations = merge $annotations (.annotations | default dict) -}}
{{- end -}}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The same of a pod that only helps, so that no selector finds it: `list ROOT WHAT`. */ -}}
{{- define "amqsidecar.helperMarks" -}}
{{- $root := index . 0 -}}
{{- $labels := dict "app.kubernetes.io/name" (printf "%s-%s" (include "amqsidecar.name" $root) (index . 1)) "app.kubernetes.io/instance" $root.Release.Name -}}
{{- include "amqsidecar.marks" (concat (list $root $labels) (slice . 2)) -}}
{{- end -}}

{{- define "amqsidecar.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "amqsidecar.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "amqsidecar.image" -}}
{{- $usual := .Chart.AppVersion -}}
{{- if dig "journal" "path" "" .Values.config }}{{ $usual = printf "%s-journal" $usual }}{{ end -}}
{{- with .Values.image -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $usual }}{{ end -}}
{{- end -}}
{{- end -}}
