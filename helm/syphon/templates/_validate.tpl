{{/* Refuses values that are valid one by one, but not together. */}}
{{- define "syphon.validate" -}}
{{- $workers := include "syphon.mostWorkers" . | int -}}
{{- $spark := .Values.sparkOnKubernetes -}}
{{- if and .Values.status.tokenKey (not .Values.existingSecret) -}}
{{- fail "status.tokenKey names a key of existingSecret, which is empty" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.status.tokenKey) -}}
{{- fail "serviceMonitor needs status.tokenKey: /metrics answers only requests with the token" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
{{- end -}}
{{- if $spark.enabled -}}
{{- if gt $workers 1 -}}
{{- fail "sparkOnKubernetes works with one worker: set replicaCount (or autoscaling.maxReplicas) to 1 or 0, and raise executors instead" -}}
{{- end -}}
{{- if not (or (contains "://" (dig "pipeline" "ledger" "./ledger" .Values.config)) .Values.persistence.enabled) -}}
{{- fail "sparkOnKubernetes needs a ledger that all pods reach: give config.pipeline.ledger a URL, or enable persistence" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.persistence.enabled (not (has "ReadWriteMany" .Values.persistence.accessModes)) -}}
{{- $pods := ternary (add $workers 1) $workers .Values.drain.enabled | int -}}
{{- if or (gt $pods 1) $spark.enabled -}}
{{- $who := ternary "executors" (printf "%d pods (%d worker(s)%s)" $pods $workers (ternary " and a drain" "" .Values.drain.enabled)) $spark.enabled -}}
{{- fail (printf "%s cannot share a volume of %s: it belongs to one node, or to one pod. Set persistence.accessModes to [ReadWriteMany] (with an existingClaim that has it), or give config.pipeline.ledger a URL and disable persistence%s" $who (join ", " .Values.persistence.accessModes) (ternary "; a drain alone needs replicaCount 0" "" .Values.drain.enabled)) -}}
{{- end -}}
{{- end -}}
{{- end }}
