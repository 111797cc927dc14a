# Completion of tidemark for bash. Asks the program itself, so it is never out of date.
_tidemark() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$(tidemark complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)" \
    -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _tidemark tidemark
