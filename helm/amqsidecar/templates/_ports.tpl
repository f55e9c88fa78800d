{{- /* The ports in a list of URLs of brokers, PostgreSQL or web servers, as YAML. */ -}}
{{- define "amqsidecar.egressPorts" -}}
{{- $usual := dict "amqp" 5672 "amqps" 5671 "artemis" 61616 "artemis+ssl" 61617 "core" 61616 "core+ssl" 61617 "openwire" 61616 "openwire+ssl" 61617 "stomp" 61613 "stomp+ssl" 61614 "postgresql" 5432 "postgres" 5432 "https" 443 "http" 80 -}}
{{- $ports := list -}}
{{- range . -}}
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

{{- /* An egress rule, of a list of ports and one of peers. */ -}}
{{- define "amqsidecar.egressRule" -}}
{{- if first . -}}
- ports:
    {{- range first . }}
    - port: {{ . }}
    {{- end }}
  {{- with last . }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- /* The egress rules that the sidecar and the listener have in common: names, on 5353 where OpenShift's DNS listens. */ -}}
{{- define "amqsidecar.commonEgress" -}}
- ports:
    {{- range list 53 5353 }}
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.to.dns }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
