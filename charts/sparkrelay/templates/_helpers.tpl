{{- define "sparkrelay.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "sparkrelay.selector" -}}
app.kubernetes.io/name: sparkrelay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sparkrelay.labels" -}}
{{ include "sparkrelay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "sparkrelay.image" -}}
{{- $repository := required "image.repository: name your image, which has the script in it" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ required "image.tag: say which image, or image.digest" .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "sparkrelay.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "sparkrelay.name" .) -}}
{{- end -}}

{{- /* Where instances, drivers and executors may write beside their state. */ -}}
{{- define "sparkrelay.scratchMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /var/cache/sparkrelay}
{{- end -}}

{{- define "sparkrelay.scratchVolumes" -}}
- {name: tmp, emptyDir: {sizeLimit: {{ .Values.scratch.sizeLimit }}}}
- {name: cache, emptyDir: {sizeLimit: 1Gi}}
{{- end -}}

{{- define "sparkrelay.environment" -}}
- name: SPARKRELAY_CLIENT_TAG_HOST
  # The pod's own name is another one after each restart, and separates nothing.
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
# The image's entry point puts its kernels there; those of another processor are compiled anew.
- {name: NUMBA_CACHE_DIR, value: /var/cache/sparkrelay/numba}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}
