{{/*
The address of the console without a slash at its end; empty = unknown.
*/}}
{{- define "amqsidecar.consoleUrl" -}}
{{- .Values.monitoring.consoleUrl | default (dig "http" "public_url" "" (include "amqsidecar.options" . | fromYaml)) | default "" | trimSuffix "/" }}
{{- end }}

{{/*
files/dashboard.json with links to the console, or without where its address is unknown.
*/}}
{{- define "amqsidecar.dashboard" -}}
{{- $text := .Files.Get "files/dashboard.json" }}
{{- $console := include "amqsidecar.consoleUrl" . }}
{{- if $console }}
{{- $text | replace "https://console.example" $console }}
{{- else }}
{{- $board := fromJson $text }}
{{- $links := list }}
{{- range $board.links }}
{{- if not (hasPrefix "https://console.example" .url) }}
{{- $links = append $links . }}
{{- end }}
{{- end }}
{{- set $board "links" $links | toPrettyJson }}
{{- end }}
{{- end }}

{{/*
The groups of files/rules.yaml with `monitoring.alerts`, `alertLabels`, `runbookUrl` and `consoleUrl`: the settings of an alert
override the file, and its thresholds fill the ${names} in its texts.
*/}}
{{- define "amqsidecar.rules" -}}
{{- $monitoring := .Values.monitoring }}
{{- $left := deepCopy $monitoring.alerts }}
{{- $console := include "amqsidecar.consoleUrl" . }}
{{- $runbooks := $monitoring.runbookUrl }}
{{- if and $console (not $runbooks) }}
{{- $runbooks = printf "%s/static/runbooks.html" $console }}
{{- end }}
{{- $urls := dict "runbook_url" $runbooks "console_url" $console }}
{{- $groups := list }}
{{- range $group := (fromYaml (.Files.Get "files/rules.yaml")).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- if hasKey $rule "alert" }}
{{- $own := get $monitoring.alerts $rule.alert | default dict }}
{{- $_ := unset $left $rule.alert }}
{{- if ne (get $own "enabled" | toString) "false" }}
{{- $rules = append $rules (include "amqsidecar.alert" (dict "rule" $rule "own" $own "monitoring" $monitoring "urls" $urls) | fromYaml) }}
{{- end }}
{{- else }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (set $group "rules" $rules) }}
{{- end }}
{{- end }}
{{- range $name, $_ := $left }}
{{- fail (printf "monitoring.alerts.%s: there is no such alert; files/rules.yaml has them" $name) }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}

{{/*
One alert. Argument: a dict of `rule`, what the values say of it (`own`), `monitoring`, and the addresses of its links (`urls`).
*/}}
{{- define "amqsidecar.alert" -}}
{{- $rule := deepCopy .rule }}
{{- $thresholds := $rule.thresholds | default dict }}
{{- $rule = omit $rule "thresholds" }}
{{- range $name, $_ := .own.thresholds | default dict }}
{{- if not (hasKey $thresholds $name) }}
{{- fail (printf "monitoring.alerts.%s.thresholds.%s: there is none of this name; it has: %s" $rule.alert $name (keys $thresholds | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- $expr := $rule.expr }}
{{- $notes := $rule.annotations | default dict }}
{{- range $name, $value := merge (deepCopy (.own.thresholds | default dict)) $thresholds }}
{{- $token := printf "${%s}" $name }}
{{- $expr = replace $token (toString $value) $expr }}
{{- range $key, $text := $notes }}
{{- $_ := set $notes $key (replace $token (toString $value) $text) }}
{{- end }}
{{- end }}
{{- $_ := set $rule "expr" $expr }}
{{- range $key := list "for" "keep_firing_for" }}
{{- with get $.own $key }}
{{- $_ := set $rule $key . }}
{{- end }}
{{- end }}
{{- $labels := merge (deepCopy (.own.labels | default dict)) (deepCopy .monitoring.alertLabels) ($rule.labels | default dict) }}
{{- with .own.severity }}
{{- $_ := set $labels "severity" . }}
{{- end }}
{{- if $labels }}
{{- $_ := set $rule "labels" $labels }}
{{- end }}
{{- range $key, $url := .urls }}
{{- if hasKey $notes $key }}
{{- if $url }}
{{- $place := ternary "https://runbooks.example/amqsidecar/runbooks.md" "https://console.example" (eq $key "runbook_url") }}
{{- $_ := set $notes $key (get $notes $key | replace $place $url) }}
{{- else }}
{{- $_ := unset $notes $key }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $rule "annotations" (merge (deepCopy (.own.annotations | default dict)) $notes) }}
{{- toYaml $rule }}
{{- end }}
