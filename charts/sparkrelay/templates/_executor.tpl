{{- define "sparkrelay.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "sparkrelay.labels" . | nindent 4 }}
    app.kubernetes.io/component: executor
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.executors.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # It asks the API server for nothing.
  automountServiceAccountToken: false
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.executors.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.executors.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- include "sparkrelay.affinity" (dict "component" "executor" "wanted" .Values.executors.antiAffinity "root" .) | nindent 2 }}
  containers:
    - name: executor
      securityContext: {{- toYaml .Values.containerSecurityContext | nindent 8 }}
      env: {{- include "sparkrelay.environment" . | nindent 8 }}
      {{- with .Values.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts: {{- include "sparkrelay.scratchMounts" . | nindent 8 }}
  volumes:
    {{- include "sparkrelay.scratchVolumes" . | nindent 4 }}
{{- end -}}

{{- /* A task and its standby on different nodes. */ -}}
{{- define "sparkrelay.affinity" -}}
{{- $term := printf "{labelSelector: {matchLabels: {app.kubernetes.io/instance: %s, app.kubernetes.io/component: %s}}, topologyKey: kubernetes.io/hostname}" (.root.Release.Name | quote) .component -}}
{{- if eq .wanted "required" -}}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - {{ $term }}
{{- else if eq .wanted "preferred" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 100, podAffinityTerm: {{ $term }}}
{{- end -}}
{{- end -}}
