// Uses a server as users of ComputeSDK do, with its provider for E2B. Takes the directory with the packages, and
// prints as JSON what it observed.
import { createRequire } from 'node:module'

const require = createRequire(`${process.argv[2]}/`)
const { e2b } = require('@computesdk/e2b')

const compute = e2b({ apiKey: process.env.E2B_API_KEY })
const report = {}
const began = performance.now()
const sandbox = await compute.sandbox.create()
const node = await sandbox.runCommand('node -v')
report.interactive = performance.now() - began < 10000
report.node = [node.exitCode, node.stdout.startsWith('v')]
const failed = await sandbox.runCommand('echo out; echo err >&2; exit 3')
report.failed = [failed.stdout, failed.stderr, failed.exitCode]
// What the suite for providers of ComputeSDK tries besides.
const info = await sandbox.getInfo()
report.info = [info.id === sandbox.sandboxId, info.provider, info.status]
report.unknown = (await sandbox.runCommand('nonexistent-command-12345')).exitCode !== 0
const quoted = [`sh -c 'echo "hello world"'`, `sh -c 'echo "$HOME"'`, `sh -c 'echo "x" > /tmp/q.txt && cat /tmp/q.txt'`]
report.quoted = []
for (const line of quoted) report.quoted.push((await sandbox.runCommand(line)).stdout.trim())
report.missing = await sandbox.filesystem.readFile('/nonexistent/file.txt').then(() => 'read', () => 'refused')
const inside = await sandbox.runCommand('printenv A; pwd', { env: { A: 'b c' }, cwd: '/tmp' })
report.options = inside.stdout.trim().split('\n')
await sandbox.filesystem.mkdir('/tmp/made')
await sandbox.filesystem.writeFile('/tmp/made/a.txt', 'content')
report.read = await sandbox.filesystem.readFile('/tmp/made/a.txt')
report.listed = (await sandbox.filesystem.readdir('/tmp/made')).map((entry) => entry.name)
report.exists = [await sandbox.filesystem.exists('/tmp/made/a.txt'), await sandbox.filesystem.exists('/tmp/absent')]
await sandbox.filesystem.remove('/tmp/made/a.txt')
report.removed = await sandbox.filesystem.exists('/tmp/made/a.txt')
await sandbox.runCommand('sleep 300', { background: true })
report.background = (await sandbox.runCommand('pgrep -x sleep')).exitCode
report.url = await sandbox.getUrl({ port: 3000 })
report.url = report.url.startsWith(`https://3000-${sandbox.sandboxId}.`)
const found = await compute.sandbox.getById(sandbox.sandboxId)
report.found = (await found.runCommand('echo found')).stdout
report.inList = (await compute.sandbox.list()).some((one) => one.sandboxId === sandbox.sandboxId)
const snapshot = await compute.snapshot?.create(sandbox.sandboxId, {})
if (snapshot) {
  const copy = await compute.sandbox.create({ snapshotId: snapshot.id })
  report.copy = (await copy.runCommand('ls -d /tmp/made')).exitCode
  await copy.destroy()
}
const probe = await sandbox.runCommand('readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/uts; cat /proc/sys/kernel/random/boot_id; sha256sum /proc/self/cgroup | cut -c1-16; tr "\\0" " " < /proc/1/cmdline; cut -d" " -f1 /proc/uptime')
report.probe = probe.exitCode
await sandbox.destroy()
report.gone = await compute.sandbox.getById(sandbox.sandboxId)
console.log(JSON.stringify(report))
process.exit(0)
