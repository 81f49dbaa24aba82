import { Sandbox } from "smithers-orchestrator";
