{{- /*
What an upgrade would leave alone: the schedule of the workload that runs now, as YAML, one sentence each.
Nothing where no cluster is asked, as by `helm template`. Another release name is another release: the sidecar itself
refuses to begin there with a new store.
*/ -}}
{{- define "amqsidecar.scheduleChanges" -}}
{{- $changes := list -}}
{{- $name := include "amqsidecar.fullname" . -}}
{{- $kinds := dict "beside" "StatefulSet" "shared" "Deployment" -}}
{{- range $shape, $kind := $kinds -}}
{{- range (lookup "apps/v1" $kind $.Release.Namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $isOurs := and (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) (hasPrefix (printf "%s-" $.Chart.Name) (get $labels "helm.sh/chart")) -}}
{{- if and $isOurs (ne $shape $.Values.shape) -}}
{{- $changes = append $changes (printf "shape was %s and becomes %s" $shape $.Values.shape) -}}
{{- else if and $isOurs (ne .metadata.name $name) -}}
{{- $changes = append $changes (printf "the name was %s and becomes %s (fullnameOverride, nameOverride)" .metadata.name $name) -}}
{{- else if $isOurs -}}
{{- $claim := "" -}}
{{- range .spec.template.spec.volumes -}}
{{- if eq .name "amqsidecar-data" }}{{ $claim = dig "persistentVolumeClaim" "claimName" "" . }}{{ end -}}
{{- end -}}
{{- if and (eq $shape "beside") (ne $claim $.Values.persistence.existingClaim) -}}
{{- $changes = append $changes (printf "persistence.existingClaim was %q and becomes %q" $claim $.Values.persistence.existingClaim) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with lookup "v1" "ConfigMap" .Release.Namespace $name -}}
{{- $before := dig "store" "url" "" (get (.data | default dict) "amqsidecar.yaml" | default "" | fromYaml) | default "sqlite:///var/lib/amqsidecar/schedule.db" -}}
{{- $after := include "amqsidecar.storeUrl" $ -}}
{{- if ne $before $after -}}
{{- $changes = append $changes (printf "config.store.url was %s and becomes %s" $before $after) -}}
{{- end -}}
{{- end -}}
{{- toYaml (uniq $changes) -}}
{{- end -}}
