# Start-up file of a window's shell: what a login shell reads, then the hooks by which the agent
# hands over commands and learns how they ended (see vmm/agent/shell.c).
__transom_dir=${TRANSOM_WINDOW%:*} __transom_nonce=${TRANSOM_WINDOW##*:}
unset TRANSOM_WINDOW
[[ -r /etc/profile ]] && . /etc/profile
for __transom_command in ~/.bash_profile ~/.bash_login ~/.profile; do
    [[ -r $__transom_command ]] && { . "$__transom_command"; break; }
done
__transom_seq=0 __transom_run= __transom_status=0 __transom_count= __transom_err= __transom_command=
__transom_flags= __transom_jump= __transom_shown= __transom_set= __transom_in= __transom_int= __transom_went= __transom_env=() __transom_old=()

# $? for the command that is about to be evaluated.
__transom_return() { return "$1"; }

# Options that would make the hooks noisy or end the shell are off while they run.
__transom_quiet() {
    __transom_flags=
    [[ $1 == *e* ]] && __transom_flags+=e
    [[ $1 == *u* ]] && __transom_flags+=u
    [[ $1 == *x* ]] && __transom_flags+=x
    [[ $1 == *a* ]] && __transom_flags+=a
    return 0
}

# Runs on a signal: is a new command waiting? Then whatever is going on must be left for the top
# level, which asks __transom_before. From a command ("b") that is done here and now, so that nothing
# behind it runs. From the prompt it takes an interrupt that the agent sends, since the line editor
# cleans up only after one that reaches it while it waits: one that is left by a jump from here
# believes for ever that its signal handlers are still there, and hears no signal any more. Only the
# shell itself can tell the two apart; the number of the command goes up when a typed one begins.
# Where interrupts are ignored ("i") the editor does not look out for them: then one is sent, and
# this signal again, by which the editor notices it.
__transom_kick() {
    [[ ! $__transom_in ]] || return 0 # it is looked at anyway, or will be asked again
    local message trap flags=$- count='\#'
    set +eaux
    builtin mapfile -d '' -n 1 -t message <"$__transom_dir/command"
    if [[ ${message[0]-} == "$__transom_seq" ]]; then
        [[ $flags != *[eaux]* ]] || set "-${flags//[!eaux]/}"
        return 0
    fi
    __transom_jump=${message[0]}
    [[ ! $__transom_run && ${count@P} == "$__transom_count" ]] || __transom_jump+=b
    builtin trap -p INT >"$__transom_dir/trap"
    builtin mapfile -d '' -t trap <"$__transom_dir/trap"
    [[ ! ${trap-} ]] || __transom_int=$trap # the user's own, put back in __transom_before
    [[ ${trap-} != "trap -- '' "* ]] || __transom_jump+=i
    [[ $__transom_flags ]] || __transom_quiet "$flags"
    PROMPT_COMMAND[7070]=$__transom_hook
}

# Our place among the prompt commands is one that "PROMPT_COMMAND=..." does not overwrite. Not to be
# called from the kick: a trap set while the line editor waits takes its signal handler away.
__transom_install() {
    PROMPT_COMMAND[7070]=$__transom_hook
    builtin trap "$__transom_trap" WINCH
}

__transom_end() { # status [cut]
    builtin printf '\e_transom;%s;E%s\e\\' "$__transom_nonce" "$__transom_run" >/dev/tty
    builtin printf 'end %s %s\n' "$__transom_run" "$*" >"$__transom_dir/status"
    __transom_run= __transom_command= __transom_status=$1
    __transom_undo
}

# Take the variables of a run back.
__transom_undo() {
    local i name
    for ((i = 0; i < ${#__transom_env[@]}; i++)); do
        name=${__transom_env[i]%%=*}
        [[ ${!name-} == "${__transom_env[i]#*=}" ]] || continue # the command changed it: its own now
        unset -v "$name"
        [[ ${__transom_old[i]} ]] && declare -gx "${__transom_old[i]}"
    done
    __transom_env=() __transom_old=()
}

# Before each prompt.
__transom_before() {
    local flags=$-
    set +eaux
    __transom_in=1
    [[ $__transom_flags ]] || __transom_quiet "$flags"
    local status=$1 count='\#' message name i IFS=$' \t\n'
    count=${count@P} __transom_jump=
    if [[ $__transom_int ]]; then eval "$__transom_int"; __transom_int=; fi
    builtin mapfile -d '' -t message <"$__transom_dir/command"
    if [[ $__transom_run && ! $__transom_went && ${message[0]-} == "$__transom_run" ]]; then
        __transom_seq= __transom_run= __transom_shown= # interrupted before it began: again
        __transom_undo
    elif [[ $__transom_run ]]; then
        __transom_end "$status" cut
        command stty "$__transom_modes" </dev/tty # what was cut short could not put them back
        __transom_shown=
    elif [[ $count != "$__transom_count" ]]; then # something was typed
        __transom_status=$status __transom_shown=
    fi
    __transom_count=$count
    if [[ ${message[0]-} == "$__transom_seq" || ! ${message[2]-} ]]; then
        __transom_seq=${message[0]} # without a command: only to leave what was going on
        builtin printf 'ready %s\n' "$__transom_seq" >"$__transom_dir/status"
        __transom_shown=1
        return
    fi
    __transom_run=${message[0]} __transom_seq=${message[0]} __transom_went= __transom_command=${message[2]}
    for ((i = 4; i < ${#message[@]}; i++)); do
        name=${message[i]%%=*}
        if [[ $name == "${message[i]}" ]]; then unset -v "$name"; continue; fi
        __transom_env+=("${message[i]}")
        if [[ -v $name ]]; then __transom_old+=("$name=${!name}"); else __transom_old+=(''); fi
        declare -gx "${message[i]}"
    done
    builtin history -s -- "$__transom_command"
    # message[3] is the command as it is shown. "d": the line at the prompt was typed on.
    if [[ $__transom_shown && ${message[1]} == *d* ]]; then
        builtin printf '^C\n' >/dev/tty
        __transom_shown=
    fi
    if [[ ! $__transom_shown ]]; then
        name=${PS1@P}
        name=${name//[$'\001\002']/}
        builtin printf '%s' "$name" >/dev/tty
    fi
    __transom_shown=
    builtin printf '%s\n' "${message[3]}" >/dev/tty
    # The agent may have interrupted us just now, for being slow to look. Once it has read "start" it
    # does so no more, and says "go": whatever it sent before has arrived by then.
    builtin printf 'start %s\n' "$__transom_run" >"$__transom_dir/status"
    while builtin read -r name <"$__transom_dir/go" && [[ $name != "$__transom_run" ]]; do :; done
    __transom_went=1
    # Only now: a shell that was interrupted before shows the command again, and that is no output.
    builtin printf '\e_transom;%s;S%s\e\\' "$__transom_nonce" "$__transom_run" >/dev/tty
    __transom_set='__transom_in= __transom_flags=; '
    if [[ $__transom_flags ]]; then
        __transom_set+="set -$__transom_flags; "
    fi
    if [[ $__transom_status != 0 && $__transom_flags != *e* ]]; then
        __transom_set+="__transom_return $__transom_status; "
    fi
}

__transom_after() {
    local flags=$- cmd i
    set +eaux
    __transom_in=1
    # Still set: not even the first line could be parsed.
    [[ $__transom_flags ]] || __transom_quiet "$flags"
    __transom_end "$1"
    __transom_install
    # The user's own prompt commands see what the run changed.
    for i in "${!PROMPT_COMMAND[@]}"; do
        [[ $i == 7070 ]] || { cmd=${PROMPT_COMMAND[i]}; __transom_return "$1"; eval "$cmd"; }
    done
    builtin printf 'ready %s\n' "$__transom_seq" >"$__transom_dir/status"
    __transom_shown=1
}

# Evaluated at the top level, so that what a command declares is global.
__transom_hook='{ __transom_before "$?"; } 2>/dev/null
if [[ $__transom_err ]]; then exec 2>&"$__transom_err" {__transom_err}>&-; __transom_err=; fi
if [[ $__transom_run ]]; then eval "$__transom_set$__transom_command"; { __transom_after "$?"; } 2>/dev/null; fi
__transom_in=
if [[ $__transom_flags ]]; then eval "__transom_flags=; set -$__transom_flags"; fi'
# The line editor says that it was interrupted; nobody asked for that.
__transom_trap='{ __transom_kick; } 2>/dev/null
if [[ $__transom_jump ]]; then
    if [[ ! $__transom_err && ! /dev/fd/2 -ef /dev/null ]]; then exec {__transom_err}>&2 2>/dev/null; fi
    if [[ $__transom_jump == *b* && $__transom_int ]]; then builtin trap - INT; fi
    if [[ $__transom_jump == *b* ]]; then builtin kill -INT $$; fi
    if [[ $__transom_jump == *i* ]]; then builtin trap - INT; fi
    builtin printf "kicked %s\n" "$__transom_jump" >"$__transom_dir/status"
fi'
__transom_modes=$(stty -g </dev/tty)
__transom_install
builtin printf 'hello %s\n' "$$" >"$__transom_dir/status"
