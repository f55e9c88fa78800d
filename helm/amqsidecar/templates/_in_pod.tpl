{{- /* For a broker's chart that has this one as a dependency; how it takes them in, README.md says. */ -}}

{{- /*
A native sidecar: it starts before the broker and ends after it.

No startup probe: the broker would not start as long as the sidecar can't. No readiness probe: the broker would get no
connections while the sidecar is not ready. Hence the patience of the liveness probe.
*/ -}}
{{- define "amqsidecar.sidecarContainer" -}}
{{ include "amqsidecar.container" . }}
restartPolicy: Always
livenessProbe:
  httpGet: {path: /healthz, port: amqsidecar}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ div .Values.probes.startupSeconds 10 }}
{{- end -}}

{{- define "amqsidecar.sidecarLabels" -}}
amqsidecar/sidecar: {{ include "amqsidecar.fullname" . | quote }}
{{- end -}}

{{- /* Which pods have the sidecar in them. */ -}}
{{- define "amqsidecar.podSelector" -}}
{{- if eq .Values.shape "inPod" -}}
{{ include "amqsidecar.sidecarLabels" . }}
{{- else -}}
{{ include "amqsidecar.selectorLabels" . }}
{{- end -}}
{{- end -}}
