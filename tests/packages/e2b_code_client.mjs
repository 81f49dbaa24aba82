// Uses a server through the package @e2b/code-interpreter of npm, and prints as JSON what it observed.
//
// Called as: e2b_code_client.mjs NODE_MODULES

import { pathToFileURL } from 'node:url'
import { createRequire } from 'node:module'

const [modules] = process.argv.slice(2)
const require = createRequire(`${modules}/`)
const { Sandbox } = await import(pathToFileURL(require.resolve('@e2b/code-interpreter')))

const report = {}
const sandbox = await Sandbox.create()
const first = await sandbox.runCode('x = 20\nprint("out")\nx + 1')
report.first = [first.text, first.logs.stdout, first.executionCount]
report.error = (await sandbox.runCode('1 / 0')).error.name
const context = await sandbox.createCodeContext({ language: 'bash', cwd: '/tmp' })
report.bash = (await sandbox.runCode('echo $PWD', { context })).logs.stdout
report.listed = (await sandbox.listCodeContexts()).some((one) => one.id === context.id)
await sandbox.restartCodeContext(context)
await sandbox.removeCodeContext(context)
try {
  await sandbox.runCode('while True: pass', { timeoutMs: 1000 })
} catch (error) {
  report.timeout = error.constructor.name
}
report.after = (await sandbox.runCode('x')).text
await sandbox.kill()
console.log(JSON.stringify(report))
