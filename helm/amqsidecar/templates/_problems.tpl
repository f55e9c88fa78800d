{{- /* Ends the rendering with every problem of the values that the schema can't see. */ -}}
{{- define "amqsidecar.refuseWrongValues" -}}
{{- $values := .Values -}}
{{- $config := .Values.config -}}
{{- $problems := list -}}
{{- $urls := include "amqsidecar.brokerUrls" . | lower | fromYamlArray -}}
{{- $store := include "amqsidecar.storeUrl" . -}}
{{- $variables := list -}}
{{- range .Values.extraEnv }}{{ $variables = append $variables .name }}{{ end -}}
{{- /* What is in the ConfigMaps and Secrets of `envFrom` can't be seen here. */ -}}
{{- $hasHiddenUrl := or (has "AMQSIDECAR_BROKER__URL" $variables) (and $values.envFrom (not $urls)) -}}
{{- if not (or $urls $hasHiddenUrl) -}}
{{- $problems = append $problems "config.broker.url is not set: set the broker's address, such as artemis+ssl://amqsidecar@broker:61617" -}}
{{- end -}}
{{- if $values.listener.enabled -}}
{{- if not (dig "listener" "acceptor" "" $config) -}}
{{- $problems = append $problems "config.listener.acceptor is not set: set the address of the broker's STOMP acceptor, such as stomp://broker:61613" -}}
{{- end -}}
{{- range list "listen" "http_listen" "cert_file" "key_file" -}}
{{- if dig "listener" . "" $config -}}
{{- $problems = append $problems (printf "config.listener.%s is set, and the chart sets it, too; use listener.port or listener.certificateSecret" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $values.image.repository -}}
{{- $problems = append $problems "image.repository is not set, and no public registry holds the image: run `make image REGISTRY=registry.example.com/team`, which pushes it and writes image.yaml, then `helm install ... -f image.yaml`" -}}
{{- end -}}
{{- range list "STORE__URL" "HTTP__LISTEN" -}}
{{- if has (printf "AMQSIDECAR_%s" .) $variables -}}
{{- $problems = append $problems (printf "extraEnv: AMQSIDECAR_%s decides what else is made; set config.%s" . (lower . | replace "__" ".")) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $values.shape "shared") (not (has (int $values.replicas) (list 1 2))) -}}
{{- $problems = append $problems (printf "replicas is %v, and shape %s has one sidecar: remove it, or set shape to shared, with a schedule in PostgreSQL" $values.replicas $values.shape) -}}
{{- end -}}
{{- $user := $values.podSecurityContext.runAsUser -}}
{{- if hasKey $values.securityContext "runAsUser" }}{{ $user = $values.securityContext.runAsUser }}{{ end -}}
{{- if and (eq (toString $user) "0") (or $values.podSecurityContext.runAsNonRoot $values.securityContext.runAsNonRoot) -}}
{{- $problems = append $problems "podSecurityContext.runAsUser is 0, and runAsNonRoot is true, so that no container starts: use another user, such as 10001" -}}
{{- end -}}
{{- $problems = concat $problems (include "amqsidecar.memoryProblems" (dict "key" "resources" "resources" $values.resources "least" 128 "why" "64Mi + 3.5 x the largest message") | fromYamlArray) -}}
{{- if $values.listener.enabled -}}
{{- $least := add 96 (dig "listener" "memory_mib" 64 $config | int) -}}
{{- $problems = concat $problems (include "amqsidecar.memoryProblems" (dict "key" "listener.resources" "resources" $values.listener.resources "least" $least "why" "96Mi + config.listener.memory_mib") | fromYamlArray) -}}
{{- end -}}
{{- $ours := list -}}
{{- if $values.store.caSecret }}{{ $ours = append $ours "PGSSLROOTCERT" }}{{ end -}}
{{- if eq (include "amqsidecar.hasVolume" .) "yes" }}{{ $ours = append $ours "SQLITE_TMPDIR" }}{{ end -}}
{{- range $index, $name := $variables -}}
{{- if has $name (concat $ours (slice $variables 0 $index)) -}}
{{- $problems = append $problems (printf "extraEnv: %s is set twice, here or by the chart; Kubernetes refuses that where Helm applies on the server. Remove one of them" $name) -}}
{{- end -}}
{{- end -}}
{{- with $values.networkPolicy -}}
{{- if and .enabled (not .extraEgress) (ne $values.shape "inPod") -}}
{{- if $hasHiddenUrl -}}
{{- $problems = append $problems "networkPolicy.extraEgress is empty, and the port of the broker in AMQSIDECAR_BROKER__URL is not visible to the chart: permit it there, or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- if and (not .to.objectStore) (contains "://" (dig "journal" "path" "" $config | toString)) -}}
{{- $problems = append $problems "networkPolicy.to.objectStore is empty, and config.journal.path is an object store: name its addresses there, such as {ipBlock: {cidr: 0.0.0.0/0}}, add a rule for another port than 443 to networkPolicy.extraEgress, or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $urls -}}
{{- $problems = concat $problems (include "amqsidecar.urlProblems" . | fromYamlArray) -}}
{{- if and $values.broker.passwordSecret (regexMatch "://" .) (not (regexMatch "://[^/@]+@" .)) -}}
{{- $problems = append $problems "config.broker.url has no user for the password of broker.passwordSecret: add one, such as artemis+ssl://amqsidecar@broker:61617" -}}
{{- end -}}
{{- if and (or $values.broker.caSecret $values.broker.caConfigMap $values.broker.certificateSecret) (regexMatch "^(amqp|artemis|core|openwire|stomp)://" .) -}}
{{- $problems = append $problems "config.broker.url is without TLS, so that broker.caSecret, broker.caConfigMap and broker.certificateSecret do nothing; use artemis+ssl://, openwire+ssl:// or stomp+ssl://, or remove them" -}}
{{- end -}}
{{- if regexMatch "://[^/@]*:[^/@]*@" . -}}
{{- $problems = append $problems "config.broker.url contains a password and would be stored in a ConfigMap: put it into a Secret, and name that in broker.passwordSecret" -}}
{{- end -}}
{{- end -}}
{{- if and (regexMatch "^postgres" $store) (regexMatch "://[^/@]*:[^/@]*@|[?&](ssl)?password=" $store) -}}
{{- $problems = append $problems "config.store.url contains a password and would be stored in a ConfigMap: put it into a Secret, and name that in store.passwordSecret" -}}
{{- end -}}
{{- $mechanisms := dig "broker" "sasl_mechanisms" list $config -}}
{{- $hidden := and $mechanisms (not (has "PLAIN" $mechanisms)) -}}
{{- if and $values.broker.passwordSecret (not (dig "broker" "allow_plain_password" false $config)) -}}
{{- range $urls -}}
{{- if and (regexMatch "^(amqp|artemis|core|openwire|stomp)://" .) (not (and $hidden (hasPrefix "amqp://" .))) (not (regexMatch "^[a-z]+://([^/@]*@)?(localhost|127\\.[0-9.]+|\\[::1\\])(:|/|$)" .)) -}}
{{- $problems = append $problems (printf "config.broker.url: the password would cross the network unencrypted; use %s:// with the broker's connector for TLS, or set config.broker.allow_plain_password to true if nobody can eavesdrop" (get (dict "amqp" "amqps" "artemis" "artemis+ssl" "core" "core+ssl" "openwire" "openwire+ssl" "stomp" "stomp+ssl") (regexFind "^[a-z]+" .))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $values.shape "shared" -}}
{{- if not (or (regexMatch "^postgres(ql)?://" $store) (eq $store "broker:")) -}}
{{- $problems = append $problems "config.store.url: several sidecars share a schedule in PostgreSQL, such as postgresql://amqsidecar@database:5432/redelivery; on Artemis also broker:. For SQLite set shape to beside" -}}
{{- end -}}
{{- if dig "store" "instance" "" $config -}}
{{- $problems = append $problems "config.store.instance: all sidecars of shape shared would have the same instance; remove it, each makes its own" -}}
{{- end -}}
{{- end -}}
{{- if and (eq $store "broker:") (ne (dig "intake" "backlog" "" $config) "process") -}}
{{- $problems = append $problems "config.intake.backlog: with config.store.url broker: there is no place to hold what was there before; set it to process, or use another store" -}}
{{- end -}}
{{- if and (regexMatch "^sqlite:" $store) (not (regexMatch "^sqlite:///var/lib/amqsidecar/." $store)) -}}
{{- $problems = append $problems "config.store.url: the volume is at /var/lib/amqsidecar, so the file has to be below it, such as sqlite:///var/lib/amqsidecar/schedule.db" -}}
{{- end -}}
{{- $journal := dig "journal" "path" "" $config | toString -}}
{{- if and $journal (not (regexMatch "://" $journal)) -}}
{{- $mounts := list -}}
{{- if eq (include "amqsidecar.hasVolume" .) "yes" }}{{ $mounts = append $mounts "/var/lib/amqsidecar" }}{{ end -}}
{{- range $values.extraVolumeMounts }}{{ $mounts = append $mounts (trimSuffix "/" .mountPath) }}{{ end -}}
{{- $isOnVolume := false -}}
{{- range $mounts }}{{ if hasPrefix (printf "%s/" .) (printf "%s/" $journal) }}{{ $isOnVolume = true }}{{ end }}{{ end -}}
{{- if not $isOnVolume -}}
{{- $problems = append $problems (printf "config.journal.path: %s is on no volume; %s" $journal (ternary "put it below /var/lib/amqsidecar, or below one of extraVolumeMounts" "mount one by extraVolumes and extraVolumeMounts that all pods may write to, or name an object store, such as s3://bucket/journal" (has "/var/lib/amqsidecar" $mounts))) -}}
{{- end -}}
{{- end -}}
{{- $listen := toString $config.http.listen -}}
{{- if or (regexMatch "^(127\\.|localhost|\\[::1\\])" $listen) (not (regexMatch ":[1-9][0-9]*$" $listen)) -}}
{{- $problems = append $problems "config.http.listen: probes come from outside of the pod; leave it at 0.0.0.0:9464, or choose another port" -}}
{{- end -}}
{{- range include "amqsidecar.files" . | fromYamlArray -}}
{{- range $option, $_ := .options -}}
{{- $set := $config -}}
{{- range splitList "." $option }}{{ $set = get ($set | default dict) . }}{{ end -}}
{{- if $set -}}
{{- $problems = append $problems (printf "config.%s is set, and the chart sets it, too, since a Secret or ConfigMap is named for it; remove one of them" $option) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $values.broker -}}
{{- if and .caSecret .caConfigMap -}}
{{- $problems = append $problems "broker.caSecret and broker.caConfigMap are both set; remove one of them" -}}
{{- end -}}
{{- end -}}
{{- with $values.policy -}}
{{- if and .existingConfigMap .content -}}
{{- $problems = append $problems "policy.existingConfigMap and policy.content are both set; remove one of them" -}}
{{- end -}}
{{- if and (or .existingConfigMap .content) (dig "policy" "rules" "" $config) -}}
{{- $problems = append $problems "config.policy.rules is set, and a file with rules is named below policy, too; remove one of them" -}}
{{- end -}}
{{- end -}}
{{- $options := include "amqsidecar.options" . | fromYaml -}}
{{- if and $options.http.console (ne (include "amqsidecar.hasWayIn" $options) "yes") -}}
{{- $problems = append $problems "config.http.console is true, and strangers could read and act: configure an authentication method below access, or in config.http" -}}
{{- end -}}
{{- if and (eq $values.shape "shared") (gt (int $values.replicas) 1) $options.http.console -}}
{{- if and (or $options.http.users_file (dig "oidc" "issuer" "" $options.http)) (not $options.http.session_key_file) -}}
{{- $problems = append $problems "access.sessionKeySecret is not set: of several replicas each would end the sessions of the others; name a Secret with 32 characters or more" -}}
{{- end -}}
{{- end -}}
{{- if $values.fleet.enabled -}}
{{- $fleet := $config.fleet | default dict -}}
{{- if not (or $fleet.sidecars $fleet.services $fleet.srv $fleet.pods) -}}
{{- $problems = append $problems "config.fleet names no sidecar: set sidecars, such as {orders: http://amqsidecar.orders:9464}, services, srv or pods" -}}
{{- end -}}
{{- if not $options.http.console -}}
{{- $problems = append $problems "fleet.enabled is true, and there is no log-in: configure an authentication method below access, or in config.http" -}}
{{- end -}}
{{- if and (or $options.http.users_file (dig "oidc" "issuer" "" $options.http)) (not $options.http.session_key_file) -}}
{{- $problems = append $problems "access.sessionKeySecret is not set: sidecars would not know the sessions of fleet; name a Secret that all of them have" -}}
{{- end -}}
{{- if and (dig "oidc" "issuer" "" $options.http) (not $values.fleet.host) -}}
{{- $problems = append $problems "fleet.host is not set: the OpenID provider redirects browsers to it" -}}
{{- end -}}
{{- if $fleet.ca_file -}}
{{- $problems = append $problems "config.fleet.ca_file is set, and the chart sets it; use fleet.caSecret" -}}
{{- end -}}
{{- if eq $values.shape "inPod" -}}
{{- $problems = append $problems "fleet.enabled: with shape inPod nothing is started; enable it in a release of another shape" -}}
{{- end -}}
{{- end -}}
{{- range $way, $enabled := dict "ingress" $values.ingress.enabled "httpRoute" $values.httpRoute.enabled -}}
{{- if $enabled -}}
{{- if not $options.http.console -}}
{{- $problems = append $problems (printf "%s.enabled is true, and there is no console: configure an authentication method below access, or in config.http" $way) -}}
{{- end -}}
{{- if eq $values.shape "inPod" -}}
{{- $problems = append $problems (printf "%s.enabled: with shape inPod there is no Service" $way) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.host) -}}
{{- $problems = append $problems "ingress.host is not set: set the console's host name for browsers" -}}
{{- end -}}
{{- with $values.httpRoute -}}
{{- if and .enabled (not .hostnames) -}}
{{- $problems = append $problems "httpRoute.hostnames is empty: set the console's host name for browsers" -}}
{{- end -}}
{{- if and .enabled (not .parentRefs) -}}
{{- $problems = append $problems "httpRoute.parentRefs is empty: name the Gateway, such as {name: public, namespace: gateways}" -}}
{{- end -}}
{{- end -}}
{{- with $values.monitoring -}}
{{- if and .podMonitor .serviceMonitor -}}
{{- $problems = append $problems "monitoring.podMonitor and monitoring.serviceMonitor are both true, so that Prometheus would ask twice; turn one of them off" -}}
{{- end -}}
{{- if and .serviceMonitor (eq $values.shape "inPod") -}}
{{- $problems = append $problems "monitoring.serviceMonitor: with shape inPod there is no Service; use monitoring.podMonitor" -}}
{{- end -}}
{{- end -}}
{{- if and $values.store.moveFrom (or (ne $values.shape "shared") (eq $store "broker:")) -}}
{{- $problems = append $problems "store.moveFrom moves a schedule into PostgreSQL: set shape to shared and config.store.url to postgresql://, or remove it" -}}
{{- end -}}
{{- if not (or $values.upgradeCheck.acceptNewSchedule $values.store.moveFrom) -}}
{{- range include "amqsidecar.scheduleChanges" . | fromYamlArray -}}
{{- $problems = append $problems (printf "%s: messages that wait in the old schedule would never be sent. Keep it; or move it (store.moveFrom, deploy/guides/moving.md); or wait until everything is sent (`amqsidecar status` prints messages 0), and set upgradeCheck.acceptNewSchedule and config.store.accept_orphans to true for this upgrade" .) -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n- %s" (uniq $problems | join "\n- ")) -}}
{{- end -}}
{{- end -}}

{{- /* What the sidecar would not take as a broker's URL (`config/broker_url.py`), as YAML, one sentence each. */ -}}
{{- define "amqsidecar.urlProblems" -}}
{{- $problems := list -}}
{{- $known := list "amqp" "amqps" "artemis" "artemis+ssl" "core" "core+ssl" "openwire" "openwire+ssl" "stomp" "stomp+ssl" -}}
{{- $others := dict "tcp" "openwire" "nio" "openwire" "ssl" "openwire+ssl" "nio+ssl" "openwire+ssl" "amqp+ssl" "amqps" "amqp+nio" "amqp" "stomps" "stomp+ssl" -}}
{{- $scheme := regexFind "^[^:/]*://" . | trimSuffix "://" | lower -}}
{{- $example := "write the wire before it, such as openwire://amqsidecar@broker:61616 for Classic or artemis://amqsidecar@broker:61616 for Artemis" -}}
{{- if hasPrefix "failover:" . -}}
{{- $problems = append $problems "config.broker.url is failover:(...): write a list of URLs instead, such as [openwire://amqsidecar@one:61616, openwire://amqsidecar@two:61616]" -}}
{{- else if not $scheme -}}
{{- $problems = append $problems (printf "config.broker.url has no wire: %s" $example) -}}
{{- else if hasKey $others $scheme -}}
{{- $wire := get $others $scheme -}}
{{- $problems = append $problems (printf "config.broker.url: %s:// is written %s:// here%s" $scheme $wire (ternary (printf "; for Artemis write %s://" (ternary "artemis+ssl" "artemis" (hasSuffix "ssl" $wire))) "" (hasPrefix "openwire" $wire))) -}}
{{- else if not (has $scheme $known) -}}
{{- $problems = append $problems (printf "config.broker.url: unknown wire %s://; known: %s" $scheme (join ", " $known)) -}}
{{- else if not (regexMatch "^[^/]*//([^/@?#]*@)?(\\[[0-9A-Fa-f:.]+\\]|[^][:/?#@]+)(:[0-9]{1,5})?/?$" .) -}}
{{- $problems = append $problems (printf "config.broker.url: expected %s://user@host:port and nothing behind it; connection options are those below config.broker" $scheme) -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{- /* Why limits of memory can't be right, as YAML, one sentence each. `least` is in MiB. */ -}}
{{- define "amqsidecar.memoryProblems" -}}
{{- $problems := list -}}
{{- $limit := dig "limits" "memory" "" (.resources | default dict) -}}
{{- $limit = ternary (printf "%.0f" $limit) (toString $limit) (kindIs "float64" $limit) -}}
{{- /* Not judged: numbers with an exponent, and thousandths, which nobody writes for memory. */ -}}
{{- if and $limit (not (regexMatch "^[0-9.]+([eE][+-]?[0-9]+|m)$" $limit)) -}}
{{- $unit := regexFind "[A-Za-z]*$" $limit -}}
{{- $mib := dict "" 0.00000095367431640625 "k" 0.00095367431640625 "Ki" 0.0009765625 "M" 0.95367431640625 "Mi" 1.0 "G" 953.67431640625 "Gi" 1024.0 "T" 953674.31640625 "Ti" 1048576.0 -}}
{{- if not (and (regexMatch "^[0-9]+(\\.[0-9]+)?[A-Za-z]*$" $limit) (hasKey $mib $unit)) -}}
{{- $problems = append $problems (printf "%s.limits.memory: %s is no quantity; write it as 512Mi" .key $limit) -}}
{{- else if lt (mulf (trimSuffix $unit $limit | float64) (get $mib $unit)) (float64 .least) -}}
{{- $problems = append $problems (printf "%s.limits.memory: %s is too little, and Kubernetes would end the container again and again: at least %vMi (%s)" .key $limit .least .why) -}}
{{- end -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}
