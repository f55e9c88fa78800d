{{- /* The container, but for its probes and what the two kinds of it differ in. */ -}}
{{- define "amqsidecar.container" -}}
name: amqsidecar
{{ include "amqsidecar.containerBasics" . }}
command: [amqsidecar, run, --config, /etc/amqsidecar/config/amqsidecar.yaml{{ if .Values.observe }}, --observe{{ end }}]
{{- $hasVolume := eq (include "amqsidecar.hasVolume" .) "yes" }}
{{- $env := include "amqsidecar.env" . }}
{{- if or $env $hasVolume }}
env:
  {{- if $hasVolume }}
  # What SQLite sorts may be larger than /tmp, such as for a new index after an update.
  - name: SQLITE_TMPDIR
    value: /var/lib/amqsidecar
  {{- end }}
  {{- with $env }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: amqsidecar
    containerPort: {{ include "amqsidecar.port" . }}
volumeMounts:
  {{- include "amqsidecar.volumeMounts" . | nindent 2 }}
{{- end -}}

{{- /* What all containers have in common. */ -}}
{{- define "amqsidecar.containerBasics" -}}
image: {{ include "amqsidecar.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{- define "amqsidecar.env" -}}
{{- if .Values.store.caSecret }}
- name: PGSSLROOTCERT
  value: /etc/amqsidecar/store-ca/ca.crt
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "amqsidecar.configMounts" -}}
- name: amqsidecar-config
  mountPath: /etc/amqsidecar/config
  readOnly: true
- name: amqsidecar-tmp
  mountPath: /tmp
{{- /* Whole folders: a file that is mounted by `subPath` would never change. */ -}}
{{- range include "amqsidecar.files" . | fromYamlArray }}
- name: amqsidecar-{{ .volume }}
  mountPath: /etc/amqsidecar/{{ .volume }}
  readOnly: true
{{- end }}
{{- range .Values.extraVolumeMounts }}
{{- if not (has .name (include "amqsidecar.leftOut" $ | fromYamlArray)) }}
{{ list . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "amqsidecar.volumeMounts" -}}
{{ include "amqsidecar.configMounts" . }}
{{- if eq (include "amqsidecar.hasVolume" .) "yes" }}
- name: amqsidecar-data
  mountPath: /var/lib/amqsidecar
{{- end }}
{{- end -}}

{{- /* "yes" where the schedule is a file. */ -}}
{{- define "amqsidecar.hasVolume" -}}
{{- if and (ne .Values.shape "shared") (regexMatch "^sqlite:" (include "amqsidecar.storeUrl" .)) -}}yes{{- end -}}
{{- end -}}

{{- define "amqsidecar.volumes" -}}
- name: amqsidecar-config
  configMap:
    name: {{ include "amqsidecar.configMapName" . | quote }}
    items:
      - {key: amqsidecar.yaml, path: amqsidecar.yaml}
- name: amqsidecar-tmp
  # Large messages wait in files there: deploy/guides/sizing.md.
  emptyDir:
    sizeLimit: 1Gi
{{- range include "amqsidecar.files" . | fromYamlArray }}
- name: amqsidecar-{{ .volume }}
  {{- if .secret }}
  secret:
    secretName: {{ .secret | quote }}
  {{- else }}
  configMap:
    name: {{ .configMap | quote }}
  {{- end }}
    {{- if $.awaitsFiles }}
    optional: true
    {{- end }}
    items:
      {{- range $path, $key := .files }}
      - {key: {{ $key | quote }}, path: {{ $path }}}
      {{- end }}
{{- end }}
{{- range .Values.extraVolumes }}
{{- if not (has .name (include "amqsidecar.leftOut" $ | fromYamlArray)) }}
{{ list . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Which of the extra volumes a check or a test goes without (`isShortLived`): a claim that is in use may not be had twice. */ -}}
{{- define "amqsidecar.leftOut" -}}
{{- $names := list -}}
{{- range .Values.extraVolumes -}}
{{- if and $.isShortLived .persistentVolumeClaim }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{- define "amqsidecar.podAnnotations" -}}
checksum/amqsidecar: {{ include "amqsidecar.checksum" . }}
{{- end -}}

{{- define "amqsidecar.volumeClaim" -}}
metadata:
  name: amqsidecar-data
  {{- with .Values.persistence.labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.persistence.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  accessModes:
    {{- toYaml .Values.persistence.accessModes | nindent 4 }}
  {{- with .Values.persistence.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .Values.persistence.size | quote }}
{{- end -}}

{{- /* What all pods have in common. */ -}}
{{- define "amqsidecar.podBasics" -}}
automountServiceAccountToken: false
# Variables named after a Service called amqsidecar could be taken for options.
enableServiceLinks: false
{{- $isMapped := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}
{{- if or (eq .Values.userNamespaces "always") (and $isMapped (eq .Values.userNamespaces "auto")) }}
hostUsers: false
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "amqsidecar.podTemplate" -}}
{{- $ours := dict "annotations" (include "amqsidecar.podAnnotations" . | fromYaml) -}}
{{- $own := dict "annotations" .Values.podAnnotations "labels" .Values.podLabels -}}
metadata:
  {{- include "amqsidecar.marks" (list . (include "amqsidecar.selectorLabels" . | fromYaml) $ours $own) | nindent 2 }}
spec:
  serviceAccountName: {{ include "amqsidecar.serviceAccountName" . | quote }}
  {{- include "amqsidecar.podBasics" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{ include "amqsidecar.container" . | indent 6 | trim }}
      # HTTP answers once the store is open, while the broker may still be away or another may hold the token.
      startupProbe:
        httpGet: {path: /healthz, port: amqsidecar}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div .Values.probes.startupSeconds 5 }}
      # The process, not the broker: starting again would not bring that back. It answers while a cycle is finished, too.
      livenessProbe:
        httpGet: {path: /healthz, port: amqsidecar}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: {{ div .Values.probes.livenessSeconds 10 }}
      # Linked to the broker, store writable, token ours: a rolling update goes on when the new one works, and stops when it can't.
      readinessProbe:
        httpGet: {path: /readyz, port: amqsidecar}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 3
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "amqsidecar.volumes" . | nindent 4 }}
    {{- if and (eq (include "amqsidecar.hasVolume" .) "yes") .Values.persistence.existingClaim }}
    - name: amqsidecar-data
      persistentVolumeClaim:
        claimName: {{ .Values.persistence.existingClaim | quote }}
    {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if eq .Values.shape "shared" }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels:
          {{- include "amqsidecar.selectorLabels" $ | nindent 10 }}
    {{- end }}
  {{- end }}
{{- end -}}
