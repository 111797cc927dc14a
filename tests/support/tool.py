"""Runs the tidemark program under test."""
import json
import subprocess


class Tool:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)

    def export(self, path, form, output, *more):
        done = self.run("export", path, "--format", form, "-o", output, *more)
        assert done.returncode == 0, done.stderr
        return done

    def report(self, path, *more):
        done = self.run("report", path, "--json", "--stacks", 1000, *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
