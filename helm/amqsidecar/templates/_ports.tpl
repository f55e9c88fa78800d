{{- /* The ports of broker, PostgreSQL and OpenID provider, as YAML. */ -}}
{{- define "amqsidecar.egressPorts" -}}
{{- $usual := dict "amqp" 5672 "amqps" 5671 "artemis" 61616 "artemis+ssl" 61617 "core" 61616 "core+ssl" 61617 "openwire" 61616 "openwire+ssl" 61617 "stomp" 61613 "stomp+ssl" 61614 "postgresql" 5432 "postgres" 5432 "https" 443 "http" 80 -}}
{{- $urls := include "amqsidecar.brokerUrls" . | lower | fromYamlArray -}}
{{- $urls = concat $urls (list (include "amqsidecar.storeUrl" .) (dig "http" "oidc" "issuer" "" .Values.config)) -}}
{{- $ports := list -}}
{{- range $urls -}}
{{- $scheme := regexFind "^[a-z+]+" . -}}
{{- if hasKey $usual $scheme -}}
{{- $hosts := regexReplaceAll "^[a-z+]+://([^@/?]*@)?([^/?]*).*$" . "${2}" | splitList "," -}}
{{- if hasPrefix "postgres" $scheme -}}
{{- /* As libpq reads it: `?port=` goes before the ports of hosts. */ -}}
{{- with regexFind "[?&]port=[^&]*" . -}}
{{- $hosts = list -}}
{{- range regexReplaceAll "^.*=" . "" | replace "%2C" "," | splitList "," }}{{ $hosts = append $hosts (printf ":%s" .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $hosts -}}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default (get $usual $scheme) | int) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toYaml -}}
{{- end -}}
