/* cli/pid.h - the file with the process id of a server (--pid FILE), the commands that use it, and the log file. */
#ifndef LS_CLI_PID_H
#define LS_CLI_PID_H

/* Write the id of this process into the file, which stays locked. 0; -1: the reason is printed: a live server owns the
 * file, or it cannot be written. The file of a server that was killed is replaced. */
int ls_pid_file_open(const char *path);
/* The same for a process that replaces the owner of the file: the file is replaced. */
int ls_pid_file_take(const char *path);
void ls_pid_file_remove(int ok); /* the one that was opened, if any. `ok`: the server has ended in order */

/* Append standard output and standard error to the file from now on. 0, or -1 with the reason printed. */
int ls_log_file_open(const char *path);
void ls_log_file_reopen(void); /* the same file again, after a rotation has renamed it */

/* The process that owns the file; 0: none does. */
long ls_pid_file_owner(const char *path);
/* Before ls_server_open: a server with such a file takes SIGHUP, by which ls_pid_reload asks, also if its parent has
 * made it ignore the signal, as nohup(1) does. */
void ls_pid_take_reload(void);
int ls_pid_reload(long pid);  /* ask it to reload. 0; -1: it has ended, or is another user's */
int ls_pid_upgrade(long pid); /* the same for an upgrade; on Windows it fails */
/* Ask it to stop, and wait until it has. 0; 1: it has not ended in order; -1 as before. */
int ls_pid_stop(long pid, const char *path);

#endif
