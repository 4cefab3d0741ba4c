# Login shells: the system-wide variables of /etc/environment, what the agent knows about this
# machine, and the user's virtual environment first in the path.
set -a
[ -r /etc/environment ] && . /etc/environment
[ -r /run/transom/environment ] && . /run/transom/environment
set +a
if [ "$(id -u)" != 0 ]; then
    VIRTUAL_ENV=/home/sandbox/user_venv
    PATH=$VIRTUAL_ENV/bin:/home/sandbox/.local/bin:$PATH
    export VIRTUAL_ENV PATH
fi
