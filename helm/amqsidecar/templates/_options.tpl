{{- /* The files that secrets and ConfigMaps give, as YAML: which volume, of what, which file is for which option. */ -}}
{{- define "amqsidecar.files" -}}
{{- with .Values.broker }}
{{- if .passwordSecret }}
- {volume: broker-password, secret: {{ .passwordSecret | quote }}, files: {password: {{ .passwordKey | quote }}}, options: {broker.password_file: password}}
{{- end }}
{{- if .caSecret }}
- {volume: broker-ca, secret: {{ .caSecret | quote }}, files: {ca.crt: {{ .caKey | quote }}}, options: {broker.tls.ca_file: ca.crt}}
{{- end }}
{{- if .caConfigMap }}
- {volume: broker-ca, configMap: {{ .caConfigMap | quote }}, files: {ca.crt: {{ .caKey | quote }}}, options: {broker.tls.ca_file: ca.crt}}
{{- end }}
{{- if .certificateSecret }}
- {volume: broker-certificate, secret: {{ .certificateSecret | quote }}, files: {tls.crt: tls.crt, tls.key: tls.key}, options: {broker.tls.cert_file: tls.crt, broker.tls.key_file: tls.key}}
{{- end }}
{{- end }}
{{- with .Values.store }}
{{- if .passwordSecret }}
- {volume: store-password, secret: {{ .passwordSecret | quote }}, files: {password: {{ .passwordKey | quote }}}, options: {store.password_file: password}}
{{- end }}
{{- if .caSecret }}
- {volume: store-ca, secret: {{ .caSecret | quote }}, files: {ca.crt: {{ .caKey | quote }}}, options: {}}
{{- end }}
{{- end }}
{{- with .Values.access }}
{{- if .tokensSecret }}
- {volume: access-tokens, secret: {{ .tokensSecret | quote }}, files: {tokens: {{ .tokensKey | quote }}}, options: {http.tokens_file: tokens}}
{{- end }}
{{- if .usersSecret }}
- {volume: access-users, secret: {{ .usersSecret | quote }}, files: {users: {{ .usersKey | quote }}}, options: {http.users_file: users}}
{{- end }}
{{- if .sessionKeySecret }}
- {volume: session-key, secret: {{ .sessionKeySecret | quote }}, files: {session-key: {{ .sessionKeyKey | quote }}}, options: {http.session_key_file: session-key}}
{{- end }}
{{- if .oidcSecret }}
- {volume: oidc, secret: {{ .oidcSecret | quote }}, files: {client-secret: {{ .oidcKey | quote }}}, options: {http.oidc.client_secret_file: client-secret}}
{{- end }}
{{- end }}
{{- with .Values.listener }}
{{- if .copyKeysSecret }}
- {volume: copy-keys, secret: {{ .copyKeysSecret | quote }}, files: {keys: {{ .copyKeysKey | quote }}}, options: {listener.copy_key_file: keys}}
{{- end }}
{{- end }}
{{- with .Values.policy }}
{{- if .existingConfigMap }}
- {volume: policy, configMap: {{ .existingConfigMap | quote }}, files: { {{- .key }}: {{ .key -}} }, options: {policy.source: {{ .key }}}}
{{- else if .content }}
- {volume: policy, configMap: {{ include "amqsidecar.configMapName" $ | quote }}, files: { {{- .key }}: {{ .key -}} }, options: {policy.source: {{ .key }}}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The ConfigMap with the options: the release's, or, for the check before an upgrade, that of the new ones. */ -}}
{{- define "amqsidecar.configMapName" -}}
{{- .configMapName | default (include "amqsidecar.fullname" .) -}}
{{- end -}}

{{- define "amqsidecar.configMapData" -}}
amqsidecar.yaml: |
  {{- include "amqsidecar.options" . | nindent 2 }}
{{- if .Values.policy.content }}
{{ .Values.policy.key }}: {{ .Values.policy.content | quote }}
{{- end }}
{{- end -}}

{{- /* The sidecar's configuration file: `config`, where the files are, and what follows from other values. */ -}}
{{- define "amqsidecar.options" -}}
{{- $config := deepCopy .Values.config -}}
{{- range include "amqsidecar.files" . | fromYamlArray -}}
{{- $file := . -}}
{{- range $option, $name := .options -}}
{{- $section := $config -}}
{{- $keys := splitList "." $option -}}
{{- range initial $keys -}}
{{- if not (get $section .) }}{{ $_ := set $section . dict }}{{ end -}}
{{- $section = get $section . -}}
{{- end -}}
{{- $_ := set $section (last $keys) (printf "/etc/amqsidecar/%s/%s" $file.volume $name) -}}
{{- end -}}
{{- end -}}
{{- $http := $config.http -}}
{{- if not (hasKey $http "console") -}}
{{- $_ := set $http "console" (eq (include "amqsidecar.hasWayIn" $config) "yes") -}}
{{- end -}}
{{- range list (and .Values.ingress.enabled .Values.ingress.host) (and .Values.httpRoute.enabled (first .Values.httpRoute.hostnames)) -}}
{{- if and . (not $http.public_url) }}{{ $_ := set $http "public_url" (printf "https://%s" .) }}{{ end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* "yes" if the options have an authentication method. */ -}}
{{- define "amqsidecar.hasWayIn" -}}
{{- $http := .http -}}
{{- if or $http.tokens_file $http.users_file $http.proxy_user_header (dig "oidc" "issuer" "" $http) -}}yes{{- end -}}
{{- end -}}

{{- define "amqsidecar.brokerUrls" -}}
{{- $url := dig "broker" "url" "" .Values.config -}}
{{- ternary $url (list $url | compact) (kindIs "slice" $url) | toYaml -}}
{{- end -}}

{{- define "amqsidecar.storeUrl" -}}
{{- dig "store" "url" "" .Values.config | default "sqlite:///var/lib/amqsidecar/schedule.db" -}}
{{- end -}}

{{- define "amqsidecar.port" -}}
{{- regexFind "[0-9]+$" (toString .Values.config.http.listen) -}}
{{- end -}}

{{- /* Changes when the pods have to be started again, since rules and options are read at the start. */ -}}
{{- define "amqsidecar.checksum" -}}
{{- $policy := .Values.policy.content -}}
{{- with .Values.policy.existingConfigMap -}}
{{- /* Nothing where no cluster is asked, as by `helm template`. */ -}}
{{- $found := lookup "v1" "ConfigMap" $.Release.Namespace . -}}
{{- $policy = toJson (dict "data" $found.data "binaryData" $found.binaryData) -}}
{{- end -}}
{{- printf "%s\n%s" (include "amqsidecar.options" .) $policy | sha256sum -}}
{{- end -}}
