#!/bin/bash
# cluster.sh - a real Slurm cluster of several nodes on one machine, for tests. Package slurmlab starts and stops it; by hand:
#
#   cluster.sh up | down | status | env | node-kill N [power] | node-start N | wipe
#
# No systemd, no cgroups. Everything lives under $SLURMLAB_DIR. Needs root and, of Debian 12,
#   apt-get install --no-install-recommends slurm-wlm munge slurmdbd slurm-wlm-mysql-plugin mariadb-server
#
# "up" on a running cluster starts what is missing and keeps all state, so it also repairs after a kill -9 of a daemon. "up" after
# "down" makes fresh state. Several clusters run side by side with other SLURMLAB_DIR and SLURMLAB_PORT.
#
# Knobs (environment):
#   SLURMLAB_DIR        directory for config, state, logs, spool      (/tmp/slurmlab)
#   SLURMLAB_NODES      number of virtual nodes, >= 2                 (4)
#   SLURMLAB_PORT       base TCP port (ctld=+0 dbd=+1 sql=+2 slurmd nK=+10+K)  (17000)
#   SLURMLAB_ACCT       dbd | none (no accounting)                    (dbd)
#   SLURMLAB_USERS      users that submit                             ("alice bob")
#   SLURMLAB_CACHE      folder for a tarball of the pristine, initialised accounting database,
#                       made by the first `up`, used by later ones; empty = none    ($SLURMLAB_DIR.cache)
#   SLURMLAB_KEEP       1 = `up` keeps jobs/accounting of the last run; 0 = fresh state   (0)
#   SLURMLAB_EXTRA_CONF file whose lines are appended to slurm.conf   ()
#   SLURMLAB_MAXJOBS    MaxJobCount                                   (2000)
#   SLURMLAB_MAXARRAY   MaxArraySize                                  (101)
#   SLURMLAB_MINJOBAGE  MinJobAge, seconds                            (900)
#   SLURMLAB_VERBOSE    1 = time of every step on stderr              (0)
set -u
export LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

DIR=${SLURMLAB_DIR:-/tmp/slurmlab}
NODES=${SLURMLAB_NODES:-4}
PORT=${SLURMLAB_PORT:-17000}
ACCT=${SLURMLAB_ACCT:-dbd}
USERS=${SLURMLAB_USERS:-alice bob}
KEEP=${SLURMLAB_KEEP:-0}
CACHE=${SLURMLAB_CACHE-$DIR.cache}
EXTRA=${SLURMLAB_EXTRA_CONF:-}

P_CTLD=$PORT; P_DBD=$((PORT+1)); P_SQL=$((PORT+2)); P_D0=$((PORT+10))
CONF=$DIR/etc/slurm.conf
HOST=$(hostname -s)
export SLURM_CONF=$CONF

say()  { printf '%s\n' "slurmlab: $*" >&2; }
die()  { say "$*"; exit 1; }
now()  { date +%s.%N; }
step() { [ "${SLURMLAB_VERBOSE:-0}" = 1 ] && printf 'slurmlab: +%.2fs %s\n' "$(echo "$(now) - $T0" | bc 2>/dev/null || awk "BEGIN{print $(now)-$T0}")" "$*" >&2; return 0; }

# gone PID: no such process, or a zombie (PID 1 of a container may be slow to reap)
gone() {
	local st
	st=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 0
	case $st in Z*|X*|'') return 0;; esac
	return 1
}

# pid_of NAME COMM...: the live pid in run/NAME.pid, provided that it still is a COMM
pid_of() {
	local f=$DIR/run/$1.pid p c; shift
	[ -s "$f" ] || return 1
	read -r p <"$f" || [ -n "$p" ] || return 1
	[ -r "/proc/$p/comm" ] && ! gone "$p" || return 1
	read -r c <"/proc/$p/comm"
	for want; do [ "$c" = "$want" ] && { echo "$p"; return 0; }; done
	return 1
}

# wait_for SECONDS CMD...: polls every 50 ms
wait_for() {
	local end=$(( $(date +%s%N) + $1*1000000000 )); shift
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s%N)" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# stop NAME COMM [GRACE]: TERM, then KILL, by the pid file that `up` wrote
stop() {
	local name=$1 comm=$2 grace=${3:-5} p
	if p=$(pid_of "$name" "$comm"); then
		kill -TERM "$p" 2>/dev/null
		if ! wait_for "$grace" gone "$p"; then
			kill -KILL "$p" 2>/dev/null
			wait_for 5 gone "$p" || say "$name (pid $p) does not die"
		fi
	fi
	rm -f "$DIR/run/$name.pid"
}

nodes() { seq 1 "$NODES"; }

# ---------------------------------------------------------------- configuration
write_conf() {
	local gpu_first=$((NODES-1)) acct_conf sql_user
	if [ "$ACCT" = dbd ]; then
		acct_conf="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$P_DBD
AccountingStoragePass=$DIR/munge/munge.socket.2
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
JobCompType=jobcomp/none"
	else
		acct_conf="AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$DIR/log/jobcomp.txt"
	fi
	cat >"$CONF" <<-END
	ClusterName=lab
	SlurmctldHost=$HOST(127.0.0.1)
	SlurmctldPort=$P_CTLD
	SlurmUser=slurm
	SlurmdUser=root
	AuthType=auth/munge
	AuthInfo=socket=$DIR/munge/munge.socket.2,cred_expire=10
	CredType=cred/munge
	StateSaveLocation=$DIR/state
	SlurmdSpoolDir=$DIR/spool/%n
	SlurmctldPidFile=$DIR/run/slurmctld.pid
	SlurmdPidFile=$DIR/run/slurmd.%n.pid
	SlurmctldLogFile=$DIR/log/slurmctld.log
	SlurmdLogFile=$DIR/log/slurmd.%n.log
	SlurmctldDebug=info
	SlurmdDebug=info
	PlugStackConfig=$DIR/etc/plugstack.conf

	# no cgroups, no systemd, no task binding
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	JobAcctGatherType=jobacct_gather/linux
	JobAcctGatherFrequency=task=1
	JobAcctGatherParams=OverMemoryKill
	SwitchType=switch/none
	MpiDefault=none
	SlurmdParameters=config_overrides
	PropagateResourceLimits=NONE

	# short timers, so that tests of failure finish
	SlurmctldTimeout=10
	SlurmdTimeout=10
	InactiveLimit=0
	KillWait=5
	OverTimeLimit=0
	MinJobAge=${SLURMLAB_MINJOBAGE:-900}
	CompleteWait=0
	ReturnToService=1
	UnkillableStepTimeout=60
	TreeWidth=64

	# scheduling
	SchedulerType=sched/backfill
	SchedulerParameters=batch_sched_delay=0,sched_interval=5,sched_min_interval=100000,bf_interval=2,bf_continue
	SelectType=select/cons_tres
	SelectTypeParameters=CR_Core_Memory
	PriorityType=priority/basic
	PreemptType=preempt/partition_prio
	PreemptMode=REQUEUE
	JobRequeue=1
	MaxArraySize=${SLURMLAB_MAXARRAY:-101}
	MaxJobCount=${SLURMLAB_MAXJOBS:-2000}
	DefMemPerCPU=100

	# accounting
	$acct_conf

	# nodes: all on this host, told apart by -N and by port
	GresTypes=gpu
	NodeName=DEFAULT CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN
	END
	local i g
	for i in $(nodes); do
		g=; [ "$i" -ge "$gpu_first" ] && g=" Gres=gpu:2 Feature=gpu"
		echo "NodeName=n$i NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((P_D0+i))$g" >>"$CONF"
	done
	cat >>"$CONF" <<-END

	PartitionName=DEFAULT State=UP MaxTime=1-00:00:00 DefaultTime=00:10:00 LLN=NO
	PartitionName=cpu  Nodes=n[1-$NODES] Default=YES PriorityTier=10 PreemptMode=OFF
	PartitionName=gpu  Nodes=n[$gpu_first-$NODES] PriorityTier=10 PreemptMode=OFF
	PartitionName=high Nodes=n[1-$NODES] PriorityTier=100 PreemptMode=OFF
	PartitionName=low  Nodes=n[1-$NODES] PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
	PartitionName=lowc Nodes=n[1-$NODES] PriorityTier=1 PreemptMode=CANCEL  GraceTime=10
	PartitionName=short Nodes=n[1-$NODES] PriorityTier=10 PreemptMode=OFF MaxTime=00:05:00 MaxNodes=1
	END
	[ -n "$EXTRA" ] && cat "$EXTRA" >>"$CONF"

	: >"$DIR/etc/plugstack.conf"
	printf 'CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\n' >"$DIR/etc/cgroup.conf"
	{
		for i in $(nodes); do
			[ "$i" -ge "$gpu_first" ] && echo "NodeName=n$i Name=gpu File=$DIR/dev/fakegpu[0-1]"
		done
	} >"$DIR/etc/gres.conf"
	cat >"$DIR/etc/slurmdbd.conf" <<-END
	AuthType=auth/munge
	AuthInfo=socket=$DIR/munge/munge.socket.2
	DbdHost=$HOST
	DbdAddr=127.0.0.1
	DbdPort=$P_DBD
	SlurmUser=slurm
	LogFile=$DIR/log/slurmdbd.log
	PidFile=$DIR/run/slurmdbd.pid
	DebugLevel=info
	StorageType=accounting_storage/mysql
	StorageHost=127.0.0.1
	StoragePort=$P_SQL
	StorageUser=slurm
	StoragePass=slurm
	StorageLoc=slurm_acct
	CommitDelay=0
	END
	chown slurm: "$DIR/etc/slurmdbd.conf"; chmod 600 "$DIR/etc/slurmdbd.conf"
	cat >"$DIR/etc/my.cnf" <<-END
	[mariadbd]
	datadir=$DIR/db
	tmpdir=$DIR/run
	socket=$DIR/run/mariadb.sock
	pid-file=$DIR/run/mariadbd.pid
	log-error=$DIR/log/mariadb.log
	bind-address=127.0.0.1
	port=$P_SQL
	user=mysql
	skip-name-resolve
	innodb_buffer_pool_size=64M
	innodb_log_file_size=16M
	innodb_flush_log_at_trx_commit=0
	innodb_flush_method=nosync
	innodb_doublewrite=0
	innodb_lock_wait_timeout=900
	performance_schema=OFF
	init-file=$DIR/etc/init.sql
	END
	cat >"$DIR/etc/init.sql" <<-END
	CREATE DATABASE IF NOT EXISTS slurm_acct;
	CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
	GRANT ALL ON slurm_acct.* TO 'slurm'@'127.0.0.1';
	END
}

prepare() {
	local u i
	for u in $USERS; do
		getent passwd "$u" >/dev/null || useradd -M -s /bin/bash "$u" || die "cannot add user $u"
	done
	if [ "$KEEP" != 1 ]; then rm -rf "$DIR"/{etc,state,spool,log,run,db,munge,dev}; fi
	mkdir -p "$DIR"/{etc,state,spool,log,run,db,munge,dev,home}
	chmod 755 "$DIR" "$DIR"/{etc,munge,home}
	chmod 1777 "$DIR/log" "$DIR/run"
	chown slurm: "$DIR/state"
	chown mysql: "$DIR/db"; chmod 700 "$DIR/db"
	for i in $(nodes); do mkdir -p "$DIR/spool/n$i"; done
	for i in 0 1; do [ -e "$DIR/dev/fakegpu$i" ] || mknod -m 666 "$DIR/dev/fakegpu$i" c 1 3; done
	for u in $USERS; do install -d -o "$u" -g "$u" "$DIR/home/$u"; done
	[ -s "$DIR/munge/munge.key" ] || { (umask 077; head -c 128 /dev/urandom >"$DIR/munge/munge.key"); }
	touch "$DIR/log/jobcomp.txt"; chown slurm: "$DIR/log/jobcomp.txt"; chmod 666 "$DIR/log/jobcomp.txt" # sacct -c opens it for writing
	write_conf
}

# ---------------------------------------------------------------- daemons
start_munged() {
	pid_of munged munged >/dev/null && return 0
	munged --force --socket="$DIR/munge/munge.socket.2" --key-file="$DIR/munge/munge.key" \
		--pid-file="$DIR/run/munged.pid" --log-file="$DIR/log/munged.log" \
		--seed-file="$DIR/munge/munged.seed" --num-threads=4 9>&- || die "munged does not start"
	wait_for 5 test -S "$DIR/munge/munge.socket.2" || die "no munge socket"
}

tcp_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_sql() {
	pid_of mariadbd mariadbd >/dev/null && return 0
	if [ ! -d "$DIR/db/mysql" ]; then
		if [ -n "$DBCACHE" ] && [ -s "$DBCACHE" ] && tar -C "$DIR/db" -xpf "$DBCACHE"; then
			step "database taken from $DBCACHE"
		else
			# A mariadbd that starts removes #sql* in its tmpdir, also those of another cluster that is at it.
			mariadb-install-db --no-defaults --tmpdir="$DIR/run" --auth-root-authentication-method=socket --skip-test-db \
				--skip-name-resolve --user=mysql --datadir="$DIR/db" >"$DIR/log/install-db.log" 2>&1 9>&- ||
				die "mariadb-install-db failed, see $DIR/log/install-db.log"
			step "database made afresh"
		fi
	fi
	setsid mariadbd --defaults-file="$DIR/etc/my.cnf" </dev/null >/dev/null 2>&1 9>&- &
	disown
	wait_for 30 tcp_open "$P_SQL" || die "mariadbd does not answer, see $DIR/log/mariadb.log"
}

start_dbd() {
	pid_of slurmdbd slurmdbd >/dev/null && return 0
	slurmdbd 9>&- || die "slurmdbd does not start, see $DIR/log/slurmdbd.log"
	wait_for 30 tcp_open "$P_DBD" || die "slurmdbd does not answer, see $DIR/log/slurmdbd.log"
}

# fill_dbd: cluster, account, users and QOS. A sacctmgr call costs 0.3 to 0.6 s whatever it does,
# so the whole is kept in a tarball, whose name tells what went into it.
fill_dbd() {
	[ -e "$DIR/db/.filled" ] && return 0
	local list=${USERS// /,}
	cat >"$DIR/etc/sacctmgr.txt" <<-END
	add cluster lab
	add account acc Cluster=lab Description=lab Organization=lab
	add qos tiny MaxSubmitJobsPerUser=2
	add qos one MaxJobsPerUser=1
	add qos smallmem MaxTRESPerJob=mem=500 Flags=DenyOnLimit
	add qos shortwall MaxWallDurationPerJob=5 Flags=DenyOnLimit
	add user $list Account=acc Cluster=lab QosLevel=normal,tiny,one,smallmem,shortwall DefaultQOS=normal
	END
	sacctmgr -i <"$DIR/etc/sacctmgr.txt" >"$DIR/log/sacctmgr.log" 2>&1
	[ "$(sacctmgr -nP show assoc cluster=lab account=acc format=user | grep -c .)" = "$(wc -w <<<"$USERS")" ] ||
		die "accounts not made, see $DIR/log/sacctmgr.log"
	touch "$DIR/db/.filled"
	if [ -n "$DBCACHE" ]; then
		stop slurmdbd slurmdbd 10; stop mariadbd mariadbd 15
		tar -C "$DIR/db" -cpf "$DBCACHE.$$" . && mv "$DBCACHE.$$" "$DBCACHE"
		start_sql; start_dbd
	fi
}

start_ctld() {
	pid_of slurmctld slurmctld >/dev/null && return 0
	(cd "$DIR/state" && slurmctld -f "$CONF" 9>&-) || die "slurmctld does not start, see $DIR/log/slurmctld.log"
	wait_for 10 scontrol ping || die "slurmctld does not answer, see $DIR/log/slurmctld.log"
}

start_node() {
	pid_of "slurmd.n$1" slurmd >/dev/null && return 0
	(cd "$DIR/spool/n$1" && slurmd -f "$CONF" -N "n$1" 9>&-) || die "slurmd n$1 does not start, see $DIR/log/slurmd.n$1.log"
}

all_idle() { [ "$(sinfo -h -N -p cpu -o %T 2>/dev/null | grep -c -x idle)" = "$NODES" ]; }

up() {
	[ "$(id -u)" = 0 ] || die "needs root"
	T0=$(now)
	if [ -s "$CONF" ] && pid_of munged munged >/dev/null; then
		say "already up; starting whatever is missing, keeping all state"
		local again=1
	else
		down_quiet
		prepare
	fi
	start_munged; step munged
	if [ "$ACCT" = dbd ]; then
		start_sql; step mariadbd
		start_dbd; step slurmdbd
		fill_dbd; step accounts
	fi
	start_ctld; step slurmctld
	local i
	for i in $(nodes); do start_node "$i"; done; step slurmds
	if [ -n "${again:-}" ]; then
		sinfo -N -l >&2
	else
		wait_for 30 all_idle || { sinfo -N -l >&2; die "nodes not all idle"; }
		step "all nodes idle"
	fi
	say "up: export SLURM_CONF=$CONF"
}

# left_pids: processes which our slurmds started and which are not slurmds: slurmstepds, and
# what jobs left behind (proctrack/linuxproc loses sight of what a job daemonises). Told by
# two variables of their environment, which slurmd sets for all of them.
left_pids() {
	local d e
	for d in /proc/[0-9]*; do
		[ "$d" = "/proc/$$" ] && continue
		[ -e "$d/exe" ] || continue
		e=$(tr '\0' '\n' 2>/dev/null <"$d/environ") || continue
		grep -q -x -F "SLURM_CONF=$CONF" <<<"$e" || continue
		case $(readlink "$d/exe" 2>/dev/null) in
		*/slurmstepd*) echo "${d#/proc/}" ;;
		*) grep -q '^SLURMD_NODENAME=' <<<"$e" && echo "${d#/proc/}" ;;
		esac
	done 2>/dev/null
}

no_jobs() { [ -z "$(timeout 5 squeue -h -o %A 2>/dev/null)" ]; }

down_quiet() {
	local f i p
	if pid_of slurmctld slurmctld >/dev/null && ! no_jobs; then
		squeue -h -o %A | sort -u | timeout 10 xargs -r scancel >/dev/null 2>&1
		wait_for 8 no_jobs
	fi
	for f in "$DIR"/run/slurmd.n*.pid; do
		[ -e "$f" ] || continue
		i=${f##*/}; stop "${i%.pid}" slurmd
	done
	for p in $(left_pids); do kill -KILL "$p" 2>/dev/null; done
	stop slurmctld slurmctld 10
	stop slurmdbd slurmdbd 10
	stop mariadbd mariadbd 15
	stop munged munged
}

down() { T0=$(now); down_quiet; step stopped; say "down"; }

status() {
	local n p bad=0 list="munged:munged"
	[ "$ACCT" = dbd ] && list="$list mariadbd:mariadbd slurmdbd:slurmdbd"
	list="$list slurmctld:slurmctld"
	for n in $(nodes); do list="$list slurmd.n$n:slurmd"; done
	for n in $list; do
		if p=$(pid_of "${n%%:*}" "${n##*:}"); then echo "${n%%:*} up $p"; else echo "${n%%:*} DOWN"; bad=3; fi
	done
	pid_of slurmctld slurmctld >/dev/null && sinfo -h -N -p cpu -o '%N %T'
	return $bad
}

show_env() {
	echo "export SLURM_CONF=$CONF"
}

# node_kill N [power]: the death of a node. Plain: kill -9 of its slurmd, as in a crash of slurmd,
# after which its jobs go on. power: its slurmstepds and jobs die too, as when the plug is pulled.
node_kill() {
	local p q
	p=$(pid_of "slurmd.n$1" slurmd) || die "n$1 is not running"
	kill -KILL "$p"; rm -f "$DIR/run/slurmd.n$1.pid"
	[ "${2:-}" = power ] || return 0
	for p in $(left_pids); do
		tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -q -x "SLURMD_NODENAME=n$1" || continue
		q=$(sed 's/.*) . //' "/proc/$p/stat" 2>/dev/null); q=${q%% *}
		case $(readlink "/proc/$q/exe" 2>/dev/null) in */slurmstepd*) kill -KILL "$q" 2>/dev/null;; esac
		kill -KILL "$p" 2>/dev/null
	done
	return 0
}

locked() {
	mkdir -p "${DIR%/*}"; exec 9>"$DIR.lock"
	flock -w 120 9 || die "another cluster.sh holds $DIR.lock"
	"$@"
}

DBCACHE=
[ -n "$CACHE" ] && { mkdir -p -m 700 "$CACHE"; DBCACHE=$CACHE/db-$(cksum <<<"$USERS $(slurmctld -V) $(sed -n '/^fill_dbd/,/^}/p' "$0")" | tr ' ' -).tar; }

case ${1:-} in
up) locked up ;;
down) locked down ;;
status) status ;;
env) show_env ;;
node-start) locked start_node "${2:?N}" ;;
node-kill) node_kill "${2:?N}" "${3:-}" ;;
wipe) locked down && rm -rf "$DIR" "$DIR.lock" ;; # the cache stays, for the next one
*) sed -n '2,/^set -u/p' "$0" | sed '$d'; exit 2 ;;
esac
