// Uses a server through the package e2b of npm, and prints as JSON what it observed. The addresses and the key
// are in the environment, as for every user of the package.
//
// Called as: e2b_client.mjs NODE_MODULES

import { pathToFileURL } from 'node:url'
import { createRequire } from 'node:module'

const [modules] = process.argv.slice(2)
const require = createRequire(`${modules}/`)
const { Sandbox, Volume, CommandExitError } = await import(pathToFileURL(require.resolve('e2b')))

async function raised(call) {
  try {
    await call()
  } catch (error) {
    return error.constructor.name
  }
  return null
}

async function commands(sandbox, report) {
  const ran = await sandbox.commands.run("printf 'hello\\n'; echo oops >&2")
  report.echo = [ran.stdout, ran.stderr, ran.exitCode]
  try {
    await sandbox.commands.run('echo out; exit 3')
  } catch (error) {
    report.failed = [error instanceof CommandExitError, error.exitCode, error.stdout]
  }
  const given = await sandbox.commands.run('echo $A $SHARED', { envs: { A: 'call' } })
  report.environment = given.stdout.trim().split(' ')
  report.root = (await sandbox.commands.run('id -u', { user: 'root' })).stdout.trim()
  report.cwd = (await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout.trim()
  report.wrongCwd = await raised(() => sandbox.commands.run('pwd', { cwd: '/absent' }))
  report.timeout = await raised(() => sandbox.commands.run('sleep 30', { timeoutMs: 1000 }))
  const started = await sandbox.commands.run('cat; echo end', { background: true, stdin: true })
  // The command whose time is over ends a moment later.
  for (let attempt = 0; attempt < 100; attempt++) {
    report.listed = (await sandbox.commands.list()).map((one) => one.pid === started.pid)
    if (report.listed.length === 1) break
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  await sandbox.commands.sendStdin(started.pid, 'to cat\n')
  await sandbox.commands.closeStdin(started.pid)
  report.stdin = (await started.wait()).stdout
  const sleeping = await sandbox.commands.run('sleep 300', { background: true })
  const joined = await sandbox.commands.connect(sleeping.pid)
  report.killed = [await sandbox.commands.kill(sleeping.pid), await sandbox.commands.kill(1234)]
  report.joined = await raised(() => joined.wait())
}

async function terminal(sandbox, report) {
  let text = ''
  const pty = await sandbox.pty.create({
    cols: 80, rows: 24, cwd: '/tmp', onData: (data) => { text += new TextDecoder().decode(data) },
  })
  await sandbox.pty.resize(pty.pid, { cols: 100, rows: 30 })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; pwd; exit\n'))
  await pty.wait()
  report.terminal = [text.includes('30 100'), text.includes('/tmp')]
}

async function files(sandbox, report) {
  const written = await sandbox.files.write('a/b.txt', 'content')
  report.written = [written.name, written.path]
  report.read = await sandbox.files.read('a/b.txt')
  report.made = [await sandbox.files.makeDir('made'), await sandbox.files.makeDir('made')]
  report.list = (await sandbox.files.list('.')).map((one) => [one.name, one.type])
    .filter(([name]) => !name.startsWith('.'))
  report.info = (await sandbox.files.getInfo('a/b.txt')).size
  report.moved = (await sandbox.files.rename('a/b.txt', 'new/c.txt')).path
  report.exists = [await sandbox.files.exists('a/b.txt'), await sandbox.files.exists('new/c.txt')]
  await sandbox.files.remove('new/c.txt')
  report.missing = await raised(() => sandbox.files.read('/absent'))
  const data = new Uint8Array(1 << 20).map((_, at) => at % 251)
  await sandbox.files.write('/tmp/binary', data.buffer)
  const back = await sandbox.files.read('/tmp/binary', { format: 'bytes' })
  report.binary = Buffer.compare(Buffer.from(back), Buffer.from(data)) === 0

  const events = []
  const seen = new Promise((resolve) => {
    sandbox.files.watchDir('made', (event) => {
      events.push(event.type)
      if (events.length === 3) resolve()
    }).then(async (watcher) => {
      await sandbox.files.write('made/watched.txt', 'x')
      await seen
      await watcher.stop()
    })
  })
  await seen
  report.events = events

  const url = await sandbox.downloadUrl('/tmp/binary', { useSignatureExpiration: 60_000 })
  report.signed = (await (await fetch(url)).arrayBuffer()).byteLength
  report.unsigned = (await fetch(url.replace('signature=v1_', 'signature=v1_x'))).status
}

async function lifecycle(sandbox, report) {
  report.state = (await sandbox.getInfo()).state
  await sandbox.setTimeout(900_000)
  const again = await Sandbox.connect(sandbox.sandboxId)
  report.connected = (await again.commands.run('echo again')).stdout
  const pages = Sandbox.list({ query: { metadata: { 'a b': 'c&d' }, state: ['running', 'paused'] } })
  report.found = (await pages.nextItems()).map((one) => one.sandboxId === sandbox.sandboxId)
  report.metrics = (await sandbox.getMetrics()).length
  await sandbox.pause()
  report.paused = [(await sandbox.getInfo()).state, await sandbox.isRunning()]
  const resumed = await Sandbox.connect(sandbox.sandboxId)
  report.resumed = (await resumed.commands.run('echo back')).stdout
  const snapshot = await resumed.createSnapshot()
  const copy = await Sandbox.create(snapshot.snapshotId)
  report.copy = await copy.files.read('/tmp/of-parent')
  await copy.kill()
  report.kill = [await sandbox.kill(), await sandbox.kill()]
  report.gone = [await sandbox.isRunning(), await raised(() => sandbox.commands.run('true'))]
}

async function volumes(report) {
  const volume = await Volume.create('data-of-javascript')
  await volume.makeDir('/dir/deep', { force: true })
  await volume.writeFile('/dir/a.txt', 'text')
  const entries = await volume.list('/dir')
  report.volume = [
    await volume.readFile('/dir/a.txt'),
    entries.map((entry) => entry.path).find((path) => path.endsWith('.txt')),
    await raised(() => volume.readFile('/absent')),
    await raised(() => volume.makeDir('/dir')),
  ]
  const sandbox = await Sandbox.create({ volumeMounts: { '/mnt/data': volume } })
  await sandbox.files.write('/mnt/data/inside.txt', 'inside')
  report.volumeMounted = [
    await sandbox.files.read('/mnt/data/dir/a.txt'),
    await volume.readFile('/inside.txt'),
  ]
  await sandbox.kill()
  report.volumeGone = [
    await Volume.destroy(volume.volumeId),
    await Volume.destroy(volume.volumeId),
    await raised(() => Volume.getInfo(volume.volumeId)),
  ]
}

const report = {}
const sandbox = await Sandbox.create({ metadata: { 'a b': 'c&d' }, envs: { SHARED: 'shared' } })
await commands(sandbox, report)
await terminal(sandbox, report)
await files(sandbox, report)
await sandbox.files.write('/tmp/of-parent', 'kept')
await lifecycle(sandbox, report)
await volumes(report)
const killed = await Sandbox.create()
const sleeping = await killed.commands.run('sleep 60', { background: true })
await killed.kill()
report.killedRunning = await sleeping.wait().catch((error) => error.message.includes('was killed or reached its end'))
report.wrongKey = await raised(() => Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }))
report.noTemplate = await raised(() => Sandbox.create('/etc'))
console.log(JSON.stringify(report))
