// Leaves five orphans, and ends with the number of zombies that are there when these have ended.
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	char path[300], text[512];
	int zombies = 0;
	struct dirent *entry;
	for (int i = 0; i < 5; i++) {
		if (fork() == 0) {
			if (fork() == 0) {
				usleep(100000);
				_exit(3);
			}
			_exit(0);
		}
		wait(0);
	}
	usleep(500000);
	DIR *proc = opendir("/proc");
	while ((entry = readdir(proc))) {
		if (!isdigit(entry->d_name[0]))
			continue;
		snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(text, sizeof text, f))
			zombies += strstr(text, ") Z ") != 0;
		if (f)
			fclose(f);
	}
	return zombies;
}
