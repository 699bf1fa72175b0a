#!/usr/bin/env bash
# What action.yml runs: the checks, once; findings as text in the log, as annotations, as SARIF and as JUnit XML. Everything comes by the environment,
# so that no input is taken for shell code. The exit code is an output: what is uploaded afterwards is so whatever it is.
set -uo pipefail

arguments=(--output "sarif=${GG_SARIF_FILE:?}" --output "junit=${GG_JUNIT_FILE:?}")
annotations=$(mktemp)
if [[ ${GG_ANNOTATIONS:-true} == true ]]; then
  arguments+=(--output "github=$annotations")
fi
if [[ -n ${GG_BASELINE:-} ]]; then
  arguments+=(--baseline "$GG_BASELINE")
fi
if [[ -n ${GG_JOBS:-} ]]; then
  arguments+=(--jobs "$GG_JOBS")
fi
while IFS= read -r mesh; do
  [[ -z $mesh ]] || arguments+=(--mesh "$mesh")
done <<<"${GG_MESH:-}"
while IFS= read -r path; do
  [[ -z $path ]] || arguments+=("$path")
done <<<"${GG_PATHS:-}"

graphguard check "${arguments[@]}"
code=$?
cat "$annotations"
rm -f "$annotations"
echo "exit-code=$code" >>"${GITHUB_OUTPUT:?}"
[[ -f $GG_SARIF_FILE ]] && echo "sarif=true" >>"$GITHUB_OUTPUT"
exit 0
