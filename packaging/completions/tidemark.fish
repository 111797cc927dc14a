# Completion of tidemark for fish. Asks the program itself, so it is never out of date.
complete -c tidemark -a '(tidemark complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
